#include <fmt/format.h>

#include <optional>
#include <utility>

#include "engine/checkpoint/file.h"
#include "engine/cli/commands.h"
#include "engine/cli/plan_inputs.h"
#include "engine/cli/plan_ranks.h"
#include "engine/cli/run_inputs.h"
#include "engine/cli/shape_of_model.h"
#include "engine/config/machine_file.h"
#include "engine/plan/forecast.h"
#include "engine/plan/nominal_host.h"
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
                          "no machine to plan for: the rates of this one were not measured yet" +
                              say_rates_elsewhere(environment),
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

// The card of a run that pretends one, beside this machine's drives, memory and update. Where the
// host plays the card otherwise, both ceilings come out of one memory, of which ram is then what a
// run takes.
Status take_card(const RunConfig& config, MachineFile& machine) {
    const Result<std::optional<MachineFile>> emulated = emulated_card(config);
    if (!emulated) return wrap(emulated.error(), "emulate");
    if (!*emulated) return {};
    // Each with its own rates, before the one takes the place of the other.
    const MachineFile card = in_dtype(**emulated, config.dtype);
    machine = in_dtype(machine, config.dtype);
    if (machine.machine.compute_cores > 0) {
        machine.ceilings.ram_bytes += machine.ceilings.gpu_bytes;
    }
    machine.ceilings.gpu_bytes = card.ceilings.gpu_bytes;
    machine.machine = with_card(machine.machine, card.machine);
    return {};
}

// Of the machine that is named, its own drives are meant: the run's folders are not here.
std::vector<std::string> take_paths_of_elsewhere(const PlanCommand& command, RunConfig& config) {
    if (command.machine_file.empty()) return {};
    return std::exchange(config.offload.nvme_paths, {});
}

// What a forecast has that train would not do.
std::vector<std::string> untrained(const RunConfig& config, const Shape& shape,
                                   const MachineFile& machine) {
    std::vector<std::string> sentences;
    CHECK(!shape.model_type.empty());
    if (!shape.trains) {
        sentences.push_back(fmt::format(
            "cannot compute model_type {} yet: planned from its shape alone", shape.model_type));
    }
    if (machine.machine.compute_cores == 0 && config.emulate.empty()) {
        sentences.emplace_back(
            "computes on the processor only, not on a card yet; emulate=MACHINE runs the loop and "
            "the drives under a pretended one");
    }
    return sentences;
}

// The files that are asked for beside the lines.
Status write_files(const PlanCommand& command, const RunConfig& config, const RunForecast& forecast,
                   const Prices& prices) {
    if (!command.html_file.empty()) {
        const Status written = save_text(command.html_file, html_of(forecast, prices));
        if (!written) return wrap(written.error(), "the drawing (--html)");
    }
    const std::string& trace = config.offload.advanced.trace;
    if (trace.empty()) return {};
    const Status written = save_text(trace, trace_of(forecast));
    return written ? written : wrap(written.error(), "the trace");
}

}  // namespace

Status run_command(const PlanCommand& command, const CommandContext& context) {
    Result<LoadedConfig> loaded =
        read_plan_settings(command.what, command.overrides,
                           command.machine_file.empty() ? Drives::named : Drives::of_machine);
    if (!loaded) return loaded.error();
    RunConfig& config = loaded->config;
    const std::vector<std::string> unseen_paths = take_paths_of_elsewhere(command, config);
    const Result<Shape> model = read_shape(config.model, context.environment);
    if (!model) return model.error();
    if (Status status = fit_length(*loaded, model->config); !status) return status;
    Result<MachineFile> machine = read_machine_of(command, config, context.environment);
    if (!machine) return machine.error();
    if (Status status = take_card(config, *machine); !status) return status;
    for (const std::string& note : loaded->notes) context.terminal.fail("note: " + note);
    if (command.machine_file.empty()) limit_to_free_space(config, model->config, *machine);
    if (command.rank_count > 0) {
        if (command.is_json || !command.html_file.empty() ||
            !config.offload.advanced.trace.empty()) {
            return offload::Error{
                offload::ErrorCode::usage,
                "--ranks is judged by arithmetic, in a few lines: there is no step to draw "
                "or to print as JSON",
                "leave out --json, --html and trace="};
        }
        const auto judged = judge_ranks(command, config, model->config, *machine);
        if (!judged) return judged.error();
        return context.terminal.print(*judged);
    }
    Result<RunForecast> forecast = forecast_run(config, model->config, *machine);
    if (!forecast) return forecast.error();
    forecast->unseen_paths = unseen_paths;
    forecast->untrained = untrained(config, *model, *machine);
    const Prices prices{.step_count = config.max_steps.value_or(0),
                        .per_hour = command.price_per_hour};
    if (Status status = write_files(command, config, *forecast, prices); !status) return status;
    if (command.is_json) return context.terminal.print(json_of(*forecast, prices) + "\n");
    std::string text;
    for (const std::string& line : describe(*forecast, prices)) text += line + "\n";
    return context.terminal.print(text);
}

}  // namespace headrace::engine
