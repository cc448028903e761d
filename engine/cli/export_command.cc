#include <filesystem>
#include <fstream>
#include <string>

#include "engine/checkpoint/copy_checkpoint.h"
#include "engine/cli/commands.h"
#include "engine/cli/run_inputs.h"
#include "engine/config/load_config.h"
#include "engine/train/train.h"

namespace headrace::engine {

using offload::Result;

namespace {

// Whether the last run in this folder wrote its last line.
bool has_finished(const std::filesystem::path& run) {
    std::ifstream file(run / "metrics.jsonl");
    std::string last;
    for (std::string line; std::getline(file, line);) last = line;
    return last.find(R"("event":"finished")") != std::string::npos;
}

}  // namespace

offload::Status run_command(const ExportCommand& command, const CommandContext& context) {
    const std::filesystem::path run = command.run_folder;
    const Result<LoadedConfig> loaded = load_config((run / "config.resolved.yaml").string(), {});
    if (!loaded) {
        return wrap(loaded.error(), "'" + command.run_folder + "' is no output_dir of a run");
    }
    const std::string trained = (run / trained_model_folder).string();
    if (!std::filesystem::exists(trained)) {
        return offload::Error{offload::ErrorCode::bad_data,
                              "cannot export '" + command.run_folder +
                                  "': the run has not come to its end, so there is no '" + trained +
                                  "'; train it first",
                              ""};
    }
    const Result<ModelShape> model = read_model_shape(trained, context.environment);
    if (!model) return model.error();
    const Result<Checkpoint> checkpoint = Checkpoint::open(trained);
    if (!checkpoint) return checkpoint.error();
    if (!has_finished(run)) {
        context.terminal.warn("the last run in " + command.run_folder +
                              " has not come to its end: this is the model of an earlier one");
    }
    context.terminal.say("exporting " + trained + " to " + command.target_folder);
    return copy_checkpoint(*checkpoint, {.target_folder = command.target_folder,
                                         .layers = layers_of(model->config),
                                         .dtype = loaded->config.dtype,
                                         .stop_signal = context.stop_signal});
}

}  // namespace headrace::engine
