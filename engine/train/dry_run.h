// The dry run: every kind of compute op once, for the largest micro-batch, on zeros, before a
// weight is loaded. The workspace is sized by a formula; this shows on the user's own machine that
// it is enough, so that a run that could end in torch's out-of-memory error ends here, with the
// numbers. Costs the time of one layer and one head.
#pragma once

#include <cstddef>
#include <span>

#include "engine/torch/llama.h"
#include "offload/schedule.h"

namespace headrace::engine {

struct DryRun {
    const LlamaConfig* config = nullptr;
    const LlamaCompute* compute = nullptr;
    const offload::Schedule* schedule = nullptr;
    std::span<std::byte> gpu_slab;  // nothing in it is in use yet; anything afterwards
    int64_t row_count = 0;
    int64_t column_count = 0;
};

// Error (does_not_fit): the workspace is too small; names what torch asked for.
offload::Status dry_run(const DryRun& options);

}  // namespace headrace::engine
