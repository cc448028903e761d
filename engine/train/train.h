// train: from checked inputs to a trained model. It chooses the placement, opens the store, loads
// the checkpoint or resumes the run that the store holds, turns the steps with evaluations and
// saves between them, and exports the result to output_dir/model. It measures and reports; it
// prints nothing. The store of a run that ended before its end is kept; that of a finished one is
// removed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/load_config.h"
#include "engine/config/machine_file.h"
#include "engine/data/dataset.h"
#include "engine/models/llama.h"
#include "engine/resume/drive_hooks.h"
#include "engine/train/metrics.h"
#include "offload/result.h"

namespace headrace::engine {

struct TrainInputs {
    const RunConfig& config;
    std::string model_dir;
    const LlamaConfig& model;
    const Dataset& train_data;
    const Dataset* eval_data = nullptr;  // null: no evaluation
    std::string drive_cache = {};        // what is known of drives: nvme/drive_cache.h; empty: none
    std::optional<MachineFile> machine = {};  // of this host, where it was measured
    DriveHooks drives{};
};

// Facts as they come, for whoever prints them; the same go to output_dir/metrics.jsonl. All are
// called on the thread of train() but where it says so; none may be empty, but for the last two.
struct TrainReporter {
    std::function<void(const std::string&)> note;  // one line
    std::function<void(const std::string&)> warn;  // one line that a user should act on
    std::function<void(const StepRecord&, int64_t full_micro_batch_count)> step;
    std::function<void(const EvalRecord&)> evaluation;
    std::function<void(const std::vector<Metric>&)> finished;
    // Once, when everything is taken and loaded, just before output_dir is written to for the first
    // time: a run that is refused leaves there what it found, and prepared data in output_dir/data,
    // which the next run finds. An Error ends the run.
    std::function<offload::Status()> begin;
    // The number of the signal that asks the run to stop, or 0. Asked after every step.
    std::function<int()> stop_signal;
    // A request to a drive does not end: the one line to say before the process is left at once,
    // with _exit(1), since the kernel may still write to memory. Called on another thread.
    std::function<void(const std::string&)> stuck;
    // A save, load, export, evaluation or step takes long and is alive: one line, again and again
    // (engine/train/wait_watch.h). Called on another thread; may be empty.
    std::function<void(const std::string&)> waiting{};
    // After each op of the training lists, with the number of them so far; may be empty.
    std::function<void(int64_t op_count)> op_done{};
};

// The folder inside output_dir that holds the trained model, whole or absent.
inline constexpr const char* trained_model_folder = "model";

// device is not cuda. Error: does_not_fit before anything is taken; bad_data, failed, diverged or
// stopped later. The model of an earlier run in output_dir is replaced when the new one is whole.
offload::Status train(const TrainInputs& inputs, const TrainReporter& reporter);

}  // namespace headrace::engine
