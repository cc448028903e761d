// What a run will take on a machine that may be elsewhere: which placement is the fastest that fits
// (offload/planner.h), how long its step is, which lane binds and what would move it, what is
// written to the drives. From a model's shape and a machine's rates alone: nothing is allocated,
// read from a drive or measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine_file.h"
#include "engine/config/run_config.h"
#include "engine/models/llama.h"
#include "engine/train/placement.h"

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

struct RunForecast {
    LlamaConfig model;
    MachineFile machine;  // with the ceilings that hold
    uint64_t parameter_count = 0;
    uint64_t tokens_per_step = 0;  // the most: every sample as long as max_length
    Job job;
    Placement placement;
    uint64_t read_bytes = 0;  // of the drives, per step
    uint64_t written_bytes = 0;
    std::vector<Remedy> remedies;               // that shorten the step, the best first
    std::vector<SmallerStates> smaller_states;  // that fit; where states are fp32 and offloaded
};

// Errors: usage (a device or rates that cannot be), does_not_fit (also: max_steps of it would write
// more than nvme_write_limit allows).
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

// For people, a line each.
std::vector<std::string> describe(const RunForecast& forecast, const Prices& prices);

}  // namespace headrace::engine
