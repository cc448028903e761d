#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "engine/cli/commands.h"
#include "engine/cli/plan_inputs.h"
#include "engine/cli/run_inputs.h"
#include "engine/cli/shape_of_model.h"
#include "engine/train/rehearse.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

namespace {

RehearsalReporter reporter_of(const RehearseCommand& command, const CommandContext& context) {
    Terminal& terminal = context.terminal;
    return {.note =
                [&](const std::string& line) {
                    if (!command.is_json) terminal.say(line);
                },
            .warn = [&](const std::string& line) { terminal.warn(line); },
            .stop_signal = context.stop_signal,
            .stuck =
                [&](const std::string& line) {
                    terminal.fail(line);
                    ::_exit(static_cast<int>(offload::ErrorCode::failed));
                }};
}

Status check_blocks(const RehearseCommand& command, const LlamaConfig& model) {
    if (command.block_count <= model.block_count) return {};
    return offload::Error{
        offload::ErrorCode::usage,
        fmt::format("--layers {}: the model has {} blocks", command.block_count, model.block_count),
        ""};
}

}  // namespace

Status run_command(const RehearseCommand& command, const CommandContext& context) {
    Result<LoadedConfig> loaded = read_plan_settings(command.what, command.overrides);
    if (!loaded) return loaded.error();
    const Result<std::optional<MachineFile>> machine =
        load_measured_machine(context.environment.measured_machine);
    if (!machine) return machine.error();
    const auto report = [&](const RunConfig& config, const LlamaConfig& model,
                            const std::string& model_dir, const Dataset* data) -> Status {
        if (Status status = check_blocks(command, model); !status) return status;
        const Result<Rehearsal> rehearsal =
            rehearse({.config = config,
                      .model = model,
                      .model_dir = model_dir,
                      .train_data = data,
                      .block_count = command.block_count,
                      .step_count = command.step_count,
                      .drive_cache = context.environment.drive_cache,
                      .machine = *machine,
                      .drives = context.hooks.drives},
                     reporter_of(command, context));
        if (!rehearsal) return rehearsal.error();
        if (command.is_json) return context.terminal.print(json_of(*rehearsal));
        std::string text;
        for (const std::string& line : describe(*rehearsal)) text += line + "\n";
        return context.terminal.print(text);
    };
    const bool is_shape_alone = std::filesystem::path(loaded->config.model).extension() == ".json";
    if (is_shape_alone || names_no_data(loaded->config)) {
        const auto model = read_shape(loaded->config.model, context.environment);
        if (!model) return model.error();
        return report(loaded->config, model->config, "", nullptr);
    }
    if (Status status = check_run(loaded->config, context.environment); !status) return status;
    const Result<RunInputs> run = read_run_inputs(std::move(*loaded), context.environment);
    if (!run) return run.error();
    return report(run->loaded.config, run->model, run->model_dir, &run->train_data);
}

}  // namespace headrace::engine
