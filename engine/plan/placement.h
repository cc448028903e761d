// Placement: from what a user asked for to a workload and a plan that stay inside the budgets, or
// to the refusal with the numbers and the change that would make it fit. Everything is counted
// before anything is taken: slots are sums, and torch's workspace is a formula.
//
// What the run file fixes is kept; what it leaves open the planner chooses (offload/planner.h) by
// the rates of a machine: this one, for a run, or another, for a plan. Both ask the same question,
// so a plan for this machine is what a run on it does. None of it changes a bit.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine_file.h"
#include "engine/config/run_config.h"
#include "engine/models/llama.h"
#include "offload/planner.h"
#include "offload/slots.h"

namespace headrace::engine {

// The parts of a model: cut by part_bytes of weights in the compute dtype.
// Error (does_not_fit): a model without a tensor.
offload::Result<offload::Layout> layout_of(const LlamaConfig& model, offload::Dtype dtype,
                                           uint64_t part_bytes);

// What the job needs, whatever the placement.
struct Job {
    LlamaConfig config;
    int64_t micro_batch_count_max = 1;
    int64_t row_count_max = 1;     // of a micro-batch, in training or evaluation
    int64_t column_count_max = 1;  // tokens of a row
    uint64_t workspace_bytes = 0;  // of torch, for that shape
    // What a block keeps of a micro-batch of training instead of computing it again in backward, at
    // most. 0: it cannot.
    uint64_t kept_bytes = 0;
};

// A training step of the job, its parts cut by part_bytes. Error (does_not_fit): as layout_of.
offload::Result<offload::Workload> workload_of(const Job& job, const RunConfig& config,
                                               uint64_t part_bytes);

// The machine's side: what ceilings default to.
struct FreeMemory {
    uint64_t available_bytes = 0;  // ram this process may still take (cgroup limits included)
    uint64_t drive_bytes = unlimited_bytes;  // of the run's drives (engine/resume/store_room.h)
};

// What a run takes at most of memory that is free, where nobody says: a fifth is left over; and the
// other way round.
uint64_t ceiling_of_free(uint64_t free_bytes);
uint64_t free_of_ceiling(uint64_t ceiling_bytes);

// Bytes per tier: ceilings, or what is needed.
using Budgets = offload::TierBytes;
Budgets budgets_of(const OffloadConfig& config, const FreeMemory& memory);

// The model with one block: all have the same shapes, and what computes one needs computes any.
LlamaConfig one_block_of(const LlamaConfig& model);

// Where a job is to run: what the machine can do, and what the run may take of it.
struct Site {
    offload::Machine machine;
    Budgets ceilings;
    // Of gpu and ram together, where both are one memory.
    uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();
    // What there is of each tier: no budget is more.
    Budgets capacity = {
        .gpu_bytes = unlimited_bytes, .ram_bytes = unlimited_bytes, .nvme_bytes = unlimited_bytes};
    uint32_t path_count = 0;    // of the store; 0: there is no drive
    bool has_one_copy = false;  // the run is resumed from a store that keeps one of everything
};
// This host: the card is played by it, and `machine` are its rates.
Site site_of(const RunConfig& config, const FreeMemory& memory, const offload::Machine& machine);
// The machine of a file; its drives are used even where the run names no paths. A budget that is
// more than it has is what it has; where the card is memory too, the two tiers share it.
Site site_of(const RunConfig& config, const MachineFile& file);

struct Placement {
    uint64_t part_bytes = 0;  // what the layout was cut by
    offload::Workload workload;
    offload::Plan plan;
    Budgets budgets;
    Budgets needs;  // what the slots take
    offload::Base base = offload::Base::card;
    offload::Choice choice;
    offload::Forecast forecast;  // of a step of the largest micro-batches
    size_t simulated_count = 0;
};

// When a run commits. Automatic, with paths: every step where all weights and states are fixed on
// nvme, or the planner chose to put some there, since they are written there anyway; where the
// planner keeps all in memory, at saves; where the run file keeps some of them in memory, at saves
// if the run saves at all or goes on with one that did.
offload::CommitRule commits_of(const RunConfig& config, uint32_t path_count);
std::optional<offload::CommitAt> commit_of(const offload::Plan& plan);

// Whether one copy of what is durable is enough where there is no room for two: nothing commits
// while steps are under way.
bool may_keep_one_copy(const RunConfig& config, uint32_t path_count);

// When it commits, and what a crash would cost: "every step: a crash costs ...".
std::string describe_commit(const RunConfig& config, const offload::Plan& plan);

// What part_bytes is where nobody says it: it grows with the model, 4 MiB to 64 MiB.
uint64_t automatic_part_bytes(offload::Dtype dtype, uint64_t parameter_count);

// What place() asks the planner first; all arguments outlive the question.
offload::Question question_of(const offload::Workload& workload, const offload::Effort& effort,
                              const RunConfig& config, const Site& site);

// Error (does_not_fit): what each tier needs at least, what it was given, and the settings that
// would make the job fit, or what the machine lacks, whatever the settings. Error (usage): a fixed
// setting that cannot be (a share that splits a layer on the gpu).
offload::Result<Placement> place(const Job& job, const RunConfig& config, const Site& site);

// Lines for people: where weights, states, gradients and activations live, and the bytes per tier.
std::vector<std::string> describe(const Placement& placement);

}  // namespace headrace::engine
