// The set-up of a run: what is found out about it before it takes memory or a drive. Which card it
// has, what an earlier start left to go on with, where everything will live, and whether this is
// the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/config/machine_file.h"
#include "engine/plan/drive_writes.h"
#include "engine/resume/identity.h"
#include "engine/resume/run_store.h"
#include "engine/train/host_placement.h"
#include "engine/train/train.h"

namespace headrace::engine {

// What a set-up begins with. References need to hold during it alone.
struct SetupInputs {
    const TrainInputs& run;
    const TrainReporter& reporter;
    const BatchPlan& batches;  // of training
    HostThreads threads;
    uint64_t ram_free_bytes = 0;  // before torch took any
};

struct RunSetup {
    std::optional<MachineFile> card;      // that is emulated
    std::optional<SavedRun> saved;        // what is resumed
    Identity identity;                    // its part_bytes are 0 before place_run
    std::vector<MicroBatchShape> shapes;  // the largest: of training, then of evaluation
    HostPlacement placed;
    std::optional<offload::CommitAt> commit_at;  // of the placement; none: it never does
    DriveWrites writes;                          // nothing before plan_writes
};

// Which run this is, and what it goes on with: where one is resumed, that it is the same and not
// done already. Errors: of the card's file, of find_saved_run, of the checkpoint and of
// check_same_run; usage, more steps are done than this start asks for. Notes numerics, and warns of
// an emulated card, of other arithmetic and of another recipe.
offload::Result<RunSetup> set_up(const SetupInputs& inputs, const Checkpoint& checkpoint);

// Where everything will live. Only then: what fits no memory says nothing of a run that is another.
// Errors: of place_on_host. Notes the placement.
offload::Status place_run(const SetupInputs& inputs, RunSetup& setup);

// What this start writes to its drives at most. Error (does_not_fit): nvme_write_limit does not
// hold a step of it, and there is one to do.
offload::Result<DriveWrites> plan_writes(const SetupInputs& inputs, const RunSetup& setup,
                                         const Checkpoint& checkpoint);

}  // namespace headrace::engine
