// `headrace bench adam`: how fast this machine updates parameters, beside how fast it moves the
// bytes of the update. For every format of states and every number of threads, in the same
// interleaved rounds, every other one backwards:
//
//   update                  through UpdatePool, on huge pages, as a run has them
//   update and page sums    the same with the checksums that a run which commits takes
//   the new weight alone    what a run that updates twice does before forward; the state is read
//                           and stays as it was
//   update, in cache        its arithmetic alone, over a few elements again and again
//   stream, LOOP, PAGES     the ceiling: engine/cli/adam_stream.h, each loop on the update's memory
//                           (huge pages) and on memory of small ones
//   triad                   STREAM's, on the same threads: what people know machines by; shown as
//                           the parameters whose update would move as many bytes
//
// Medians are shown; the ceiling of a row is the best stream of its group, which moves the bytes of
// a whole update, so the new weight alone has none. Of an update, of_triad is its bytes a second by
// the triad's. Nothing but memory is
// used: weights, states and gradients that look like a run's, all of it touched before it is
// measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/cli/bench_rows.h"
#include "engine/cli/command_line.h"
#include "offload/result.h"

namespace headrace::engine {

struct AdamBenchContext {
    uint32_t core_count = 1;              // of this process: what "all threads" means
    uint64_t free_bytes = 0;              // what may be taken of the machine's memory
    std::function<bool()> should_stop{};  // asked before every measurement
    std::function<void(const std::string& line)> say{};  // progress, for people
};

// One number of parameters, format and number of threads.
struct AdamBenchGroup {
    std::string title;
    std::vector<BenchRow> rows;
};

// Errors: no such row of the update (usage); does not fit, with the numbers, before anything is
// taken; stopped.
offload::Result<std::vector<AdamBenchGroup>> bench_adam(const BenchAdamCommand& command,
                                                        const AdamBenchContext& context);

// As tables for people.
std::string text_of(const std::vector<AdamBenchGroup>& groups);

}  // namespace headrace::engine
