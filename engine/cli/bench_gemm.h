// `headrace bench gemm`: how fast layers of a shape are computed here: a block forward, backward
// with and without what it keeps, and the head, as a run computes them, in operations as
// engine/models/effort.h counts them; and all together in the proportions of a step, which is the
// rate a machine file has. Each call takes the next of several blocks, whose weights, gradients and
// kept bytes have left the caches, as in a step. The ceiling is a square product of torch's,
// interleaved.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/cli/bench_rows.h"
#include "engine/cli/command_line.h"
#include "engine/models/llama.h"
#include "offload/result.h"

namespace headrace::engine {

// What is computed where no model is named: 0.4 billion parameters, the width of small models.
LlamaConfig default_shape();

struct GemmBenchContext {
    int compute_thread_count = 1;
    uint64_t free_bytes = 0;  // of memory
    std::function<bool()> should_stop{};
    std::function<void(const std::string& line)> say{};  // progress, for people
};

struct GemmBench {
    std::vector<BenchRow> rows;     // GFLOP/s; the last is a whole step's
    double step_flops = 0;          // per second: all blocks recomputed, and the head
    double reduce_bytes_per_s = 0;  // read and written, of gradients on their way to the stash
};

// Sets torch's threads. Errors: does_not_fit, stopped.
offload::Result<GemmBench> bench_gemm(const BenchGemmCommand& command, const LlamaConfig& shape,
                                      const GemmBenchContext& context);

}  // namespace headrace::engine
