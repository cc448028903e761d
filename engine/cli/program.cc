#include "engine/cli/program.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/cli/command_line.h"
#include "engine/cli/commands.h"
#include "engine/cli/environment.h"
#include "engine/cli/stop_signal.h"
#include "engine/cli/terminal.h"
#include "engine/torch/threads.h"

namespace headrace::engine {

namespace {

// Does what was asked; the code to leave with.
int run(const CommandLine& line, const CommandContext& context) {
    if (const Exit* exit = std::get_if<Exit>(&line)) {
        if (exit->code != 0) {
            context.terminal.fail(exit->text);
            return exit->code;
        }
    }
    const offload::Status status = std::visit(
        [&context](const auto& command) -> offload::Status {
            if constexpr (std::is_same_v<std::decay_t<decltype(command)>, Exit>)
                return context.terminal.print(command.text);
            else
                return run_command(command, context);
        },
        line);
    if (status) return 0;
    context.terminal.fail(status.error().text());
    if (context.stop_signal() != 0) return 128 + context.stop_signal();
    return static_cast<int>(status.error().code);
}

}  // namespace

int run_program(int argument_count, char** argument_values, const ProgramHooks& hooks) {
    open_standard_streams();
    const CommandLine line =
        parse_command_line({argument_values + 1, argument_values + argument_count});
    const Environment environment = read_environment();
    Terminal terminal(environment.has_color ? Terminal::Color::allowed : Terminal::Color::never);
    const auto* doctor = std::get_if<DoctorCommand>(&line);
    const bool computes = std::holds_alternative<TrainCommand>(line) ||
                          std::holds_alternative<RehearseCommand>(line) ||
                          std::holds_alternative<BenchGemmCommand>(line) ||
                          (doctor != nullptr && doctor->is_probe);
    if (computes) {
        const offload::Status quiet = reexec_without_spinning(argument_count, argument_values);
        if (!quiet) terminal.warn(quiet.error().text());
    }
    // What runs for hours and takes something away at its end; the others may die where they are.
    std::optional<StopSignal> stop;
    if (computes || std::holds_alternative<ExportCommand>(line) ||
        std::holds_alternative<BenchNvmeCommand>(line) ||
        std::holds_alternative<BenchAdamCommand>(line) ||
        std::holds_alternative<BenchLinkCommand>(line) ||
        std::holds_alternative<BenchGemmCommand>(line) ||
        std::holds_alternative<RandomModelCommand>(line) ||
        (doctor != nullptr && doctor->is_probe)) {
        survive_closed_pipes();
        survive_file_size_limits();
        stop.emplace();
    }
    return run(line, {.environment = environment,
                      .terminal = terminal,
                      .stop_signal = [&stop] { return stop ? stop->number() : 0; },
                      .hooks = hooks});
}

}  // namespace headrace::engine
