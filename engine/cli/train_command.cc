#include <fmt/format.h>

#include <filesystem>

#include "engine/cli/commands.h"
#include "engine/cli/run_inputs.h"
#include "engine/cli/step_line.h"
#include "engine/config/load_config.h"
#include "engine/resume/run_store.h"
#include "engine/train/train.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

namespace {

const Metric* find_metric(const std::vector<Metric>& metrics, std::string_view name) {
    for (const Metric& metric : metrics) {
        if (metric.name == name) return &metric;
    }
    return nullptr;
}

std::string text_of_metric(const std::vector<Metric>& metrics, std::string_view name) {
    const Metric* metric = find_metric(metrics, name);
    if (metric == nullptr) return "?";
    if (const auto* text = std::get_if<std::string>(&metric->value)) return *text;
    if (const auto* size_bytes = std::get_if<int64_t>(&metric->value)) {
        return offload::format_bytes(static_cast<uint64_t>(*size_bytes));
    }
    return fmt::format("{}", std::get<double>(metric->value));
}

// The last words of a run: what it made, and where the bytes were.
void say_finished(const std::vector<Metric>& metrics, Terminal& terminal) {
    const auto text = [&](std::string_view name) { return text_of_metric(metrics, name); };
    terminal.say(
        fmt::format("memory: peak {} resident, of which {} the program and torch; "
                    "weights {}, gradients {}, states {}",
                    text("peak_rss_bytes"), text("baseline_rss_bytes"), text("parameter_bytes"),
                    text("gradient_bytes"), text("state_bytes")));
    if (find_metric(metrics, "emulated") != nullptr) {
        terminal.say(fmt::format("EMULATED {}: nothing was trained, and no model is written",
                                 text("emulated")));
        return;
    }
    terminal.say("final sha256=" + text("weights_sha256") + " states=" + text("states_sha256"));
    terminal.say("trained model: " + text("model_folder"));
}

// The run that an earlier start left on other drives than this start names would be forgotten, and
// its metrics replaced. What that start named can have gone since: then nothing can be said.
offload::Status check_earlier_start(const RunConfig& config) {
    if (config.resume_from_checkpoint || config.overwrite_output_dir) return {};
    const std::filesystem::path resolved =
        std::filesystem::path(config.output_dir) / "config.resolved.yaml";
    std::error_code ignored;
    if (!std::filesystem::exists(resolved, ignored)) return {};
    Result<LoadedConfig> earlier = load_config(resolved.string(), {});
    if (!earlier || earlier->config.offload.nvme_paths == config.offload.nvme_paths) return {};
    earlier->config.output_dir = config.output_dir;
    earlier->config.resume_from_checkpoint = false;
    earlier->config.overwrite_output_dir = false;
    const auto saved = find_saved_run(earlier->config);
    if (saved || saved.error().code != offload::ErrorCode::usage) return {};
    return saved.error();
}

}  // namespace

offload::Status run_command(const TrainCommand& command, const CommandContext& context) {
    Result<LoadedConfig> loaded = load_config(command.run_file, command.overrides);
    if (!loaded) return loaded.error();
    const Status possible = check_run(loaded->config, Leaves::a_model, context.environment);
    if (!possible) return possible.error();
    const offload::Status earlier = check_earlier_start(loaded->config);
    if (!earlier) return earlier.error();
    Result<RunInputs> inputs = read_run_inputs(std::move(*loaded), context.environment);
    if (!inputs) return inputs.error();
    if (const int number = context.stop_signal(); number != 0) {
        return offload::Error{offload::ErrorCode::stopped,
                              fmt::format("stopped by signal {} while reading the data", number),
                              ""};
    }
    Result<std::optional<MachineFile>> machine =
        read_rates(inputs->loaded.config, context.environment);
    if (!machine) return machine.error();
    Terminal& terminal = context.terminal;
    for (const std::string& note : inputs->notes) terminal.say(note);
    if (!*machine) {
        const std::string others = say_rates_elsewhere(context.environment);
        if (!others.empty()) terminal.say("this machine was not measured" + others);
    }
    return train(
        {.config = inputs->loaded.config,
         .model_dir = inputs->model_dir,
         .model = inputs->model,
         .train_data = inputs->train_data,
         .eval_data = inputs->eval_data ? &*inputs->eval_data : nullptr,
         .drive_cache = context.environment.drive_cache,
         .machine = std::move(*machine),
         .drives = context.hooks.drives},
        {.note = [&](const std::string& line) { terminal.say(line); },
         .warn = [&](const std::string& line) { terminal.warn(line); },
         .step = [&](const StepRecord& record,
                     int64_t full) { terminal.say(step_line(record, full)); },
         .evaluation = [&](const EvalRecord& record) { terminal.say(eval_line(record)); },
         .finished = [&](const std::vector<Metric>& metrics) { say_finished(metrics, terminal); },
         .begin = [&] { return write_resolved_config(inputs->loaded); },
         .stop_signal = context.stop_signal,
         .stuck = context.leave_when_stuck(),
         .waiting = [&](const std::string& line) { terminal.say(line); },
         .op_done = context.hooks.op_done});
}

}  // namespace headrace::engine
