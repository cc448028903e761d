// rehearse: a few steps of a run on a part of its model: some blocks at full width between the
// embedding and the head, placed as the whole model would be, with real drives, updates, commits
// and loop, and the card that the run has or emulates. What is measured is set beside what was
// predicted for that part, and scaled to the whole model by what is predicted for the whole:
//
//   whole = measured of the part * predicted of the whole / predicted of the part
//
// Nothing is kept: no store, no model, no metrics, whatever ends the process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine_file.h"
#include "engine/data/dataset.h"
#include "engine/resume/drive_hooks.h"
#include "engine/train/host_placement.h"
#include "offload/timeline.h"

namespace headrace::engine {

struct RehearsalInputs {
    const RunConfig& config;
    const LlamaConfig& model;             // the whole
    std::string model_dir = {};           // with its weights; empty: they are made up
    const Dataset* train_data = nullptr;  // null: made-up tokens, every sample as long as may be
    const Dataset* eval_data = nullptr;   // of the run, for its largest shapes; null: none
    int64_t block_count = 3;              // of the part; at most the model's
    int64_t step_count = 4;               // that are measured, after the warm-up
    std::string drive_cache = {};         // nvme/drive_cache.h; empty: none
    std::optional<MachineFile> machine = {};  // of this host, where it was measured
    DriveHooks drives{};
};

// The same with another configuration, which outlives what is returned.
RehearsalInputs with_config(const RehearsalInputs& inputs, const RunConfig& config);

// As in TrainReporter.
struct RehearsalReporter {
    std::function<void(const std::string&)> note;
    std::function<void(const std::string&)> warn;
    std::function<int()> stop_signal;
    std::function<void(const std::string&)> stuck;
};

// A step of the part, or of the whole.
struct RehearsedStep {
    offload::Forecast forecast;
    uint64_t read_bytes = 0;  // of the drives
    uint64_t written_bytes = 0;
    uint64_t updated_parameter_count = 0;  // those updated twice count twice
    offload::TierBytes needs;
};

struct Rehearsal {
    std::string emulated;  // the card; empty: none is
    int64_t block_count = 0;
    int64_t whole_block_count = 0;
    int64_t token_count = 0;  // of a step, padding included
    RehearsedStep part;
    RehearsedStep whole;
    std::vector<double> steps_s;    // measured, of the part
    double step_s = 0;              // their median
    offload::LaneTimes lane_times;  // of the median step
    uint64_t peak_rss_bytes = 0;

    double whole_step_s() const { return step_s * whole.forecast.step_s / part.forecast.step_s; }
};

// Errors: of place_on_host; of the checkpoint and the store; stopped, where a signal asks to.
offload::Result<Rehearsal> rehearse(const RehearsalInputs& inputs,
                                    const RehearsalReporter& reporter);

// How the whole would be placed. Nothing is taken. Errors: of place_on_host, of the emulated card.
offload::Result<HostPlacement> place_rehearsal(const RehearsalInputs& inputs);

std::vector<std::string> describe(const Rehearsal& rehearsal);
std::string json_of(const Rehearsal& rehearsal);

}  // namespace headrace::engine
