#include <fmt/format.h>

#include <filesystem>

#include "engine/cli/commands.h"
#include "engine/cli/shape_of_model.h"
#include "engine/config/load_config.h"
#include "engine/config/machine_file.h"
#include "engine/config/yaml_value.h"
#include "engine/train/forecast.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

namespace {

// A plan reads no data; the run file may name some, and a model alone names none.
constexpr std::string_view no_data = "train_data='(none is read by a plan)'";

// A run file, as train takes it, or a model.
Result<LoadedConfig> read_settings(const PlanCommand& command) {
    const std::filesystem::path what(command.what);
    if (what.extension() == ".yaml" || what.extension() == ".yml") {
        return load_config(command.what, command.overrides);
    }
    std::vector<std::string> overrides = {"model=" + yaml_quoted(command.what),
                                          std::string(no_data)};
    overrides.insert(overrides.end(), command.overrides.begin(), command.overrides.end());
    return load_config("", overrides);
}

}  // namespace

Status run_command(const PlanCommand& command, const CommandContext& context) {
    const Result<MachineFile> machine = load_machine(command.machine_file);
    if (!machine) return machine.error();
    const Result<LoadedConfig> loaded = read_settings(command);
    if (!loaded) return loaded.error();
    const RunConfig& config = loaded->config;
    const Result<Shape> model = read_shape(config.model, context.environment);
    if (!model) return model.error();
    const Result<RunForecast> forecast = forecast_run(config, model->config, *machine);
    if (!forecast) return forecast.error();
    std::string text;
    const Prices prices{.step_count = config.max_steps.value_or(0),
                        .per_hour = command.price_per_hour};
    for (const std::string& line : describe(*forecast, prices)) text += line + "\n";
    return context.terminal.print(text);
}

}  // namespace headrace::engine
