#include <variant>

#include "engine/cli/commands.h"
#include "engine/cli/environment.h"
#include "engine/cli/last_words.h"
#include "engine/cli/program.h"
#include "engine/cli/quiet_start.h"
#include "engine/cli/terminal.h"

namespace headrace::engine {

namespace {

offload::Status run_doctor(const DoctorCommand& command, const CommandContext& context) {
    const offload::Status told = run_command(command, context);
    return told && command.is_probe ? probe_machine(command, context) : told;
}

offload::Status run_any(const CommandLine& line, const CommandContext& context) {
    return std::visit(
        [&context](const auto& command) -> offload::Status {
            using Command = std::decay_t<decltype(command)>;
            if constexpr (std::is_same_v<Command, Exit>) {
                return context.terminal.print(command.text);
            } else if constexpr (std::is_same_v<Command, DoctorCommand>) {
                return run_doctor(command, context);
            } else {
                return run_command(command, context);
            }
        },
        line);
}

}  // namespace

int run_torch_program(int argument_count, char** argument_values, const ProgramHooks& hooks) {
    open_standard_streams();
    tell_what_was_refused();
    const CommandLine line =
        parse_command_line({argument_values + 1, argument_values + argument_count});
    if (computes(line) && !has_chosen_how_to_wait()) {
        const Environment environment = read_environment();
        Terminal terminal(environment.has_color ? Terminal::Color::allowed
                                                : Terminal::Color::never);
        terminal.warn(start_quietly(running_program(), argument_values).text() +
                      ": torch's threads will spin; set that variable yourself");
    }
    return run_commands(line, run_any, hooks);
}

}  // namespace headrace::engine
