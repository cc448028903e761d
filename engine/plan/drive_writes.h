// DriveWrites: what a run writes to its drives at most, from its placement alone. A plan that would
// write more than nvme_write_limit is refused by these numbers, and a run stops by them in time
// (engine/train/stop.h). Not counted is what a store writes of its own, beside the data: its map,
// and some KiB for each commit.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/plan/placement.h"

namespace headrace::engine {

struct DriveWrites {
    uint64_t load_bytes = 0;  // before the first step: what is loaded, or a saved run repacked
    uint64_t step_bytes = 0;  // by a step of the most micro-batches, with its update
    uint64_t save_bytes = 0;  // by a save; 0: the run never saves
    uint64_t evaluation_bytes = 0;  // by an evaluation; 0: it writes nothing, or there is none
    bool operator==(const DriveWrites&) const = default;
};

// What loading leaves of the states: zeros, which no drive is asked to keep, or what the weights
// have that their dtype has not (offload/state_format.h).
enum class LoadedStates : uint8_t { zero, written };

// Of a new run. Where it has evaluations, they are of so many micro-batches each; 0: none.
DriveWrites drive_writes_of(const Placement& placement, LoadedStates states,
                            int64_t evaluated_micro_batch_count);

// Of a run that comes to its end. An evaluation is not among it: how large one is, its data says.
uint64_t bytes_of_run(const DriveWrites& writes, int64_t step_count,
                      std::optional<int64_t> save_steps);

// The least that a run can do: load, evaluate, turn one step, save it, evaluate again.
// Error (does_not_fit): that is more than the limit, with the numbers.
offload::Status check_one_step_within(uint64_t limit_bytes, const DriveWrites& writes);

}  // namespace headrace::engine
