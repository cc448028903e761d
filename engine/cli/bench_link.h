// `headrace bench link`: what the link between ram and the card carries: one way, both ways at
// once, and beside an update, which wants the same memory. On the host device the card is memory
// too, and one thread copies between two slabs, as a run's lanes do it.
//
// A ceiling is half of what all cores stream through memory (a copy reads and writes every byte).
// Rounds are interleaved and medians are shown.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/cli/bench_rows.h"
#include "engine/cli/command_line.h"
#include "offload/result.h"

namespace headrace::engine {

struct LinkBenchContext {
    uint32_t core_count = 1;
    uint64_t free_bytes = 0;  // of memory
    std::function<bool()> should_stop{};
    std::function<void(const std::string& line)> say{};  // progress, for people
};

// What the rows say, for a machine file.
struct LinkFigures {
    double h2d_bytes_per_s = 0;
    double d2h_bytes_per_s = 0;
    double both_bytes_per_s = 0;         // both directions together
    double both_beside_bytes_per_s = 0;  // and beside an update
    double update_parameters_per_s = 0;  // alone
    double update_beside_parameters_per_s = 0;
    double stream_bytes_per_s = 0;  // of memory, read and written, by all cores
};

struct LinkBench {
    std::vector<BenchRow> copies;   // GB/s
    std::vector<BenchRow> updates;  // Gparam/s
    LinkFigures figures;
};

// Errors: does_not_fit (memory), stopped.
offload::Result<LinkBench> bench_link(const BenchLinkCommand& command,
                                      const LinkBenchContext& context);

// As the tables for people.
std::string text_of(const LinkBench& bench);

}  // namespace headrace::engine
