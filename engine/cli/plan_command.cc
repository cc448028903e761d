#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "engine/cli/commands.h"
#include "engine/cli/plan_inputs.h"
#include "engine/cli/plan_ranks.h"
#include "engine/cli/run_inputs.h"
#include "engine/cli/shape_of_model.h"
#include "engine/config/machine_file.h"
#include "engine/plan/forecast.h"
#include "engine/resume/store_room.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

namespace {

// The machine that was named, or this one as it was measured.
Result<MachineFile> read_machine_of(const PlanCommand& command, const RunConfig& config,
                                    const Environment& environment) {
    if (!command.machine_file.empty()) return load_machine(command.machine_file);
    Result<std::optional<MachineFile>> measured = read_rates(config, environment);
    if (!measured) return measured.error();
    if (*measured) return std::move(**measured);
    return offload::Error{offload::ErrorCode::usage,
                          "no machine to plan for: the rates of this one were not measured yet",
                          "measure them with headrace doctor --probe [--nvme PATH], or name "
                          "another's: --machine configs/hardware/rtx4090.yaml"};
}

// Of drives of this machine that the run names: what is free there now, as a run on it finds it.
void limit_to_free_space(const RunConfig& config, const LlamaConfig& model, MachineFile& machine) {
    if (config.offload.nvme_paths.empty()) return;
    const uint64_t result_bytes = bytes_of(config.dtype, parameter_count(model));
    const uint64_t room_bytes = room_for_store(config, result_bytes);
    if (room_bytes > 0) machine.ceilings.nvme_bytes = room_bytes;
}

Status write_text(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (file) return {};
    return offload::Error{
        offload::ErrorCode::failed,
        fmt::format("cannot write the drawing '{}': {}", path, std::strerror(errno)),
        "--html names a file in a folder that exists"};
}

}  // namespace

Status run_command(const PlanCommand& command, const CommandContext& context) {
    const Result<LoadedConfig> loaded = read_plan_settings(command.what, command.overrides);
    if (!loaded) return loaded.error();
    const RunConfig& config = loaded->config;
    Result<MachineFile> machine = read_machine_of(command, config, context.environment);
    if (!machine) return machine.error();
    const Result<Shape> model = read_shape(config.model, context.environment);
    if (!model) return model.error();
    if (command.machine_file.empty()) limit_to_free_space(config, model->config, *machine);
    if (command.rank_count > 0) {
        const auto judged = judge_ranks(command, config, model->config, *machine);
        if (!judged) return judged.error();
        return context.terminal.print(*judged);
    }
    const Result<RunForecast> forecast = forecast_run(config, model->config, *machine);
    if (!forecast) return forecast.error();
    const Prices prices{.step_count = config.max_steps.value_or(0),
                        .per_hour = command.price_per_hour};
    if (!command.html_file.empty()) {
        const Status written = write_text(command.html_file, html_of(*forecast, prices));
        if (!written) return written;
    }
    if (command.is_json) return context.terminal.print(json_of(*forecast, prices) + "\n");
    std::string text;
    for (const std::string& line : describe(*forecast, prices)) text += line + "\n";
    return context.terminal.print(text);
}

}  // namespace headrace::engine
