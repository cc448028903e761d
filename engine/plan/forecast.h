// What a run will take on a machine that may be elsewhere: which placement is the fastest that fits
// (offload/planner.h), how long its step is, which lane binds and what would move it, what is
// written to the drives. From a model's shape and a machine's rates alone: nothing is allocated,
// read from a drive or measured.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/machine_file.h"
#include "engine/config/run_config.h"
#include "engine/models/llama.h"
#include "engine/plan/placement.h"

namespace headrace::engine {

// One change of the machine, and the step it would give.
struct Remedy {
    std::string change;  // "twice the drives"
    double step_s = 0;
};

// The same job with states in another format.
struct SmallerStates {
    offload::StateFormat states = offload::StateFormat::bf16;
    double step_s = 0;
    uint64_t written_bytes = 0;  // to the drives, per step
};

// The same job that commits at saves instead of every step: what is cached in ram is then written
// when the run saves, and not by a step.
struct CommitAtSaves {
    double step_s = 0;
    uint64_t written_bytes = 0;  // to the drives, per step
    uint64_t nvme_bytes = 0;     // that the store takes
    // With one copy of everything, which a run that saves at its end alone can do with; 0: it
    // cannot.
    uint64_t one_copy_bytes = 0;
};

// What low-rank adapters on every product of the blocks would take instead of training all
// weights. An estimate: nothing trains them yet, so nothing of it was simulated. The base is frozen
// and only read: on the card where it fits, else in ram, else on the drives as far as ram does not
// hold it. A step takes what its longest lane does alone.
struct LoraEstimate {
    int64_t rank = 16;
    uint64_t trained_count = 0;  // parameters of the adapters; their states lie in ram
    offload::Tier base_tier = offload::Tier::gpu;  // the farthest that any of it is on
    double step_s = 0;
    std::string_view longest_lane;  // "the card", "the link to the card", "the drives"
    uint64_t read_bytes = 0;        // of the drives, per step
    uint64_t nvme_bytes = 0;        // of the base
};
LoraEstimate estimate_lora(const Job& job, const Placement& placement, const MachineFile& machine);

struct RunForecast {
    LlamaConfig model;
    MachineFile machine;  // with the ceilings that hold
    uint64_t parameter_count = 0;
    uint64_t tokens_per_step = 0;  // the most: every sample as long as max_length
    Job job;
    Placement placement;
    uint64_t read_bytes = 0;  // of the drives, per step
    uint64_t written_bytes = 0;
    std::string commit;                      // describe_commit
    std::vector<std::string> large_budgets;  // of the run, that are more than the machine has
    // What of it train does not do yet, each a sentence; whoever asked for the forecast knows.
    std::vector<std::string> untrained;
    // Folders that the run names and that nobody looked at: the machine's own drives are meant.
    std::vector<std::string> unseen_paths;
    std::vector<Remedy> remedies;               // that shorten the step, the best first
    std::vector<SmallerStates> smaller_states;  // that fit; where states are fp32 and offloaded
    std::optional<CommitAtSaves> at_saves;      // where it writes less or takes less space
    std::optional<LoraEstimate> lora;           // where something is offloaded
};

// Errors: usage (a device or rates that cannot be), does_not_fit (also: one step of it, or
// max_steps, would write more than nvme_write_limit allows).
offload::Result<RunForecast> forecast_run(const RunConfig& config, const LlamaConfig& model,
                                          const MachineFile& machine);

// What is typed beside the run: how many steps, and what an hour costs; 0: not known.
struct Prices {
    int64_t step_count = 0;
    double per_hour = 0;
};

// For programs: one JSON object on one line; bytes, seconds and shares, as their keys say.
std::string json_of(const RunForecast& forecast, const Prices& prices);

// For people: the lines below, and the simulated step as a picture (offload/drawing.h).
std::string html_of(const RunForecast& forecast, const Prices& prices);

// The simulated step for ui.perfetto.dev, as train writes it beside a measured one.
std::string trace_of(const RunForecast& forecast);

// For people, a line each.
std::vector<std::string> describe(const RunForecast& forecast, const Prices& prices);

}  // namespace headrace::engine
