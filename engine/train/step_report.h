// Where the steps of a run went, from what its loop recorded: lines for people, numbers for
// metrics.jsonl, and a trace file with the plan beside what was measured.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/metrics.h"
#include "offload/effort.h"
#include "offload/machine.h"
#include "offload/step_recorder.h"

namespace headrace::engine {

// Of the step of median time among those recorded: a line with its time, then one per lane. A run
// too short to have a whole step has none.
std::vector<std::string> describe_steps(const offload::StepRecorder& recorder);

// The same as numbers: median_step_ms, step_busy_LANE_ms, step_waiting_LANE_for_LANE_ms (those that
// are not 0).
std::vector<Metric> step_metrics(const offload::StepRecorder& recorder);

// The machine of the rates that the recorded lanes reached, none of them sharing anything: a plan
// on it tells what the order of the list costs, where speed is not in question.
offload::Machine machine_of_rates(const offload::Schedule& schedule,
                                  const offload::Timeline& timeline, const offload::Effort& effort);

// The trace that a run file may want of its steps.
struct WantedTrace {
    std::string path;      // empty: none is wanted
    std::string emulated;  // the card; empty: none is
    const offload::StepRecorder& recorder;
    offload::Effort effort;
    std::optional<offload::Machine> machine{};  // that was planned for; none: machine_of_rates
};
using Say = std::function<void(const std::string& line)>;

// Replaces what is there, whole or not at all, and says where it is; where it cannot be written, it
// is warned of, and costs a run nothing else. Nothing is written where nothing was recorded.
void write_trace(const WantedTrace& wanted, const Say& note, const Say& warn);

}  // namespace headrace::engine
