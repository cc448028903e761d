#include "engine/cli/rehearsal_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/cli/plan_inputs.h"
#include "engine/cli/shape_of_model.h"
#include "offload/check.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

namespace {

constexpr int64_t usual_block_count = 3;

}  // namespace

Result<RehearsalSource> read_rehearsal(const std::string& what,
                                       const std::vector<std::string>& overrides,
                                       const Environment& environment) {
    Result<LoadedConfig> loaded = read_plan_settings(what, overrides);
    if (!loaded) return loaded.error();
    Result<std::optional<MachineFile>> machine = read_rates(loaded->config, environment);
    if (!machine) return machine.error();
    const bool is_shape = std::filesystem::path(loaded->config.model).extension() == ".json";
    if (is_shape || names_no_data(loaded->config)) {
        const auto config = read_config_json(loaded->config.model, environment);
        if (!config) return config.error();
        if (Status status = check_trace(loaded->config); !status) return status.error();
        auto model = parse_llama_config(config->text, config->path);
        if (!model) {
            return wrap(model.error(), "cannot rehearse what train cannot compute, only plan it");
        }
        if (Status status = fit_length(*loaded, *model); !status) return status.error();
        return RehearsalSource{.loaded = std::move(*loaded),
                               .model = std::move(*model),
                               .model_dir = {},
                               .train_data = std::nullopt,
                               .eval_data = std::nullopt,
                               .machine = std::move(*machine)};
    }
    if (Status status = check_run(loaded->config, Leaves::nothing, environment); !status)
        return status.error();
    Result<RunInputs> run = read_run_inputs(std::move(*loaded), environment);
    if (!run) return run.error();
    return RehearsalSource{.loaded = std::move(run->loaded),
                           .model = std::move(run->model),
                           .model_dir = std::move(run->model_dir),
                           .train_data = std::move(run->train_data),
                           .eval_data = std::move(run->eval_data),
                           .machine = std::move(*machine)};
}

Result<RehearsalInputs> rehearsal_inputs(const RehearsalSource& source, const RunConfig& config,
                                         const RehearsalSize& size, const CommandContext& context) {
    CHECK_GE(size.step_count, 1);
    CHECK_GE(size.block_count, 0);
    CHECK_GE(source.model.block_count, 1);
    const int64_t block_count = size.block_count > 0
                                    ? size.block_count
                                    : std::min(usual_block_count, source.model.block_count);
    if (size.block_count > source.model.block_count) {
        return offload::Error{offload::ErrorCode::usage,
                              fmt::format("--layers {}: the model has {} blocks", size.block_count,
                                          source.model.block_count),
                              ""};
    }
    return RehearsalInputs{.config = config,
                           .model = source.model,
                           .model_dir = source.model_dir,
                           .train_data = source.train_data ? &*source.train_data : nullptr,
                           .eval_data = source.eval_data ? &*source.eval_data : nullptr,
                           .block_count = block_count,
                           .step_count = size.step_count,
                           .drive_cache = context.environment.drive_cache,
                           .machine = source.machine,
                           .drives = context.hooks.drives};
}

RehearsalReporter rehearsal_reporter(Notes notes, const CommandContext& context) {
    Terminal& terminal = context.terminal;
    return {.note =
                [&terminal, notes](const std::string& line) {
                    if (notes == Notes::said) terminal.say(line);
                },
            .warn = [&terminal](const std::string& line) { terminal.warn(line); },
            .stop_signal = context.stop_signal,
            .stuck = context.leave_when_stuck()};
}

}  // namespace headrace::engine
