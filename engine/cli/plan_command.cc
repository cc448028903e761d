#include "engine/cli/commands.h"
#include "engine/cli/plan_inputs.h"
#include "engine/cli/shape_of_model.h"
#include "engine/config/machine_file.h"
#include "engine/train/forecast.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

Status run_command(const PlanCommand& command, const CommandContext& context) {
    const Result<MachineFile> machine = load_machine(command.machine_file);
    if (!machine) return machine.error();
    const Result<LoadedConfig> loaded = read_plan_settings(command.what, command.overrides);
    if (!loaded) return loaded.error();
    const RunConfig& config = loaded->config;
    const Result<Shape> model = read_shape(config.model, context.environment);
    if (!model) return model.error();
    const Result<RunForecast> forecast = forecast_run(config, model->config, *machine);
    if (!forecast) return forecast.error();
    std::string text;
    const Prices prices{.step_count = config.max_steps.value_or(0),
                        .per_hour = command.price_per_hour};
    if (command.is_json) return context.terminal.print(json_of(*forecast, prices) + "\n");
    for (const std::string& line : describe(*forecast, prices)) text += line + "\n";
    return context.terminal.print(text);
}

}  // namespace headrace::engine
