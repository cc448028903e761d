// The placement of a run on this host: from its data's largest micro-batches, what the machine has
// free and how fast it is, by the planner; and, once steps were measured, how right the planner
// was. What place() does for any machine (engine/plan/placement.h), with this one's facts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine_file.h"
#include "engine/data/batch_plan.h"
#include "engine/plan/nominal_host.h"
#include "engine/plan/placement.h"

namespace headrace::engine {

struct HostRun {
    RunConfig config;
    const LlamaConfig& model;
    std::vector<MicroBatchShape> shapes;  // the largest: of training, then of evaluation
    int64_t micro_batch_count_max = 1;
    int64_t step_count = 1;
    HostThreads threads;
    FreeMemory memory;                     // of this host
    const MachineFile* machine = nullptr;  // as measured; null: nominal rates
    const MachineFile* card = nullptr;     // that is emulated; null: the host plays the card
    // Of the run that is resumed: its parts are kept where nobody wants others.
    std::optional<uint64_t> saved_part_bytes;
    bool has_one_copy = false;  // of that run's store
};

struct HostPlacement {
    Placement placement;
    offload::Machine machine;        // the rates it was chosen by
    offload::Effort effort;          // of the largest micro-batches
    int64_t token_count_max = 0;     // of a step of them
    std::vector<std::string> lines;  // for people, at most a dozen
};

// A card that is emulated brings its own memory: where no ceilings are given they are the card's,
// and four fifths of what is free here, as gpu and ram have together otherwise.
// Errors as of place(). Where memory does not hold the job and no drive is named, the refusal names
// the file systems with room for the store.
offload::Result<HostPlacement> place_on_host(HostRun run);

// Seconds that a step of so many tokens is predicted to take: what computes them takes its share of
// the largest step, what moves weights and states as long as ever.
double predicted_step_s(const HostPlacement& placed, double token_count);

}  // namespace headrace::engine
