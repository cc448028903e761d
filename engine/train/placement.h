// Placement: from what a user asked for to a workload and a plan that stay inside the budgets, or
// to the refusal with the numbers and the change that would make it fit. Everything is counted
// before anything is taken: slots are sums, and torch's workspace is a formula.
//
// What the run file fixes is kept; what it leaves open is chosen in this order: two layers in
// flight rather than one, all micro-batches in one pass, activations as near to the gpu as they
// fit, gradients in ram, then ring slots for read-ahead as long as ram lasts. What is then still
// free, of the gpu first and then of ram, takes what blocks keep for their backward, the last block
// first, since its values wait the shortest time. None of it changes a bit.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
};

// Bytes per tier: ceilings, or what is needed.
using Budgets = offload::TierBytes;
Budgets budgets_of(const OffloadConfig& config, const FreeMemory& memory);

struct Placement {
    uint64_t part_bytes = 0;  // what the layout was cut by
    offload::Workload workload;
    offload::Plan plan;
    Budgets budgets;
    Budgets needs;  // what the slots take
};

// When the run commits; nothing: never. Automatic is every step where all weights and states live
// on nvme, since they are written there anyway; with some of them in memory it is at saves, if the
// run saves at all or goes on with one that did.
std::optional<offload::CommitAt> commit_of(const RunConfig& config);

// One line: what a crash would cost.
std::string describe_commit(const RunConfig& config);

// Error (does_not_fit): what each tier needs at least, what it was given, and the settings that
// would make the job fit, or what the machine lacks, whatever the settings. Error (usage): a fixed
// setting that cannot be (a share that splits a layer on the gpu).
offload::Result<Placement> place(const Job& job, const RunConfig& config, const FreeMemory& memory);

// Lines for people: where weights, states, gradients and activations live, and the bytes per tier.
std::vector<std::string> describe(const Placement& placement);

// How many bytes of this kind live on the tier (homes only).
uint64_t home_bytes(const Placement& placement, offload::Kind kind, offload::Tier tier);

}  // namespace headrace::engine
