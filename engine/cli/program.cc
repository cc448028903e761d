#include "engine/cli/program.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/cli/commands.h"
#include "engine/cli/environment.h"
#include "engine/cli/last_words.h"
#include "engine/cli/quiet_start.h"
#include "engine/cli/stop_signal.h"
#include "engine/cli/terminal.h"
#include "offload/units.h"

namespace headrace::engine {

namespace {

constexpr std::string_view torch_program = "headrace_torch";

// Of torch's libraries without a card, and of a small run beside them: 475 MiB were the least. The
// loader's own words, where there are fewer, name no limit.
constexpr uint64_t torch_address_bytes = 480 * offload::mib;

// 128 + n is for what signal n ended as it should: not for a save that failed after it came.
int code_of(const offload::Status& status, const CommandContext& context) {
    if (status) return 0;
    context.terminal.fail(status.error().text());
    if (status.error().code != offload::ErrorCode::stopped) {
        return static_cast<int>(status.error().code);
    }
    // None: a child was told to stop, and not this process.
    const int number = context.stop_signal();
    return number != 0 ? 128 + number : static_cast<int>(offload::ErrorCode::failed);
}

// What runs for hours and takes something away at its end; the others may die where they are.
bool stops_in_order(const CommandLine& line) {
    return computes(line) || std::holds_alternative<ExportCommand>(line) ||
           std::holds_alternative<BenchNvmeCommand>(line) ||
           std::holds_alternative<BenchAdamCommand>(line) ||
           std::holds_alternative<BenchLinkCommand>(line) ||
           std::holds_alternative<RandomModelCommand>(line);
}

offload::Status run_without_torch(const CommandLine& line, const CommandContext& context) {
    return std::visit(
        [&context](const auto& command) -> offload::Status {
            using Command = std::decay_t<decltype(command)>;
            if constexpr (std::is_same_v<Command, Exit>) {
                return context.terminal.print(command.text);
            } else if constexpr (always_computes<Command>) {
                CHECK_TEXT(false, "headrace_torch does this");
            } else {
                return run_command(command, context);
            }
        },
        line);
}

offload::Status become_torch_program(char** argument_values) {
    if (address_limit_bytes() < torch_address_bytes) {
        return offload::Error{
            offload::ErrorCode::failed,
            fmt::format("cannot start '{}': torch's libraries need {} of addresses, and this "
                        "process may have {} (ulimit -v)",
                        torch_program, offload::format_bytes(torch_address_bytes),
                        offload::format_bytes(address_limit_bytes())),
            "raise the limit: ulimit -v unlimited"};
    }
    offload::Error error =
        start_quietly(running_program().parent_path() / torch_program, argument_values);
    error.what += "; it belongs beside headrace and computes for it";
    return error;
}

}  // namespace

bool computes(const CommandLine& line) {
    return std::visit(
        [](const auto& command) {
            using Command = std::decay_t<decltype(command)>;
            if constexpr (std::is_same_v<Command, DoctorCommand>) return command.is_probe;
            return always_computes<Command>;
        },
        line);
}

int run_commands(const CommandLine& line, Commands commands, const ProgramHooks& hooks) {
    const Environment environment = read_environment();
    Terminal terminal(environment.has_color ? Terminal::Color::allowed : Terminal::Color::never);
    const Exit* exit = std::get_if<Exit>(&line);
    if (exit != nullptr && exit->code != 0) {
        terminal.fail(exit->text);
        return exit->code;
    }
    std::optional<StopSignal> stop;
    if (stops_in_order(line)) {
        survive_closed_pipes();
        survive_file_size_limits();
        stop.emplace();
    }
    const CommandContext context{.environment = environment,
                                 .terminal = terminal,
                                 .stop_signal = [&stop] { return stop ? stop->number() : 0; },
                                 .hooks = hooks};
    return code_of(commands(line, context), context);
}

int run_program(int argument_count, char** argument_values) {
    open_standard_streams();
    tell_what_was_refused();
    const CommandLine line =
        parse_command_line({argument_values + 1, argument_values + argument_count});
    if (!computes(line)) return run_commands(line, run_without_torch, {});
    const Environment environment = read_environment();
    Terminal terminal(environment.has_color ? Terminal::Color::allowed : Terminal::Color::never);
    const offload::Status refused = become_torch_program(argument_values);
    terminal.fail(refused.error().text());
    return static_cast<int>(refused.error().code);
}

}  // namespace headrace::engine
