// The commands: each says what it has to say on the terminal, and returns why it could not be done.
// program.cc turns that into an exit code.
#pragma once

#include <unistd.h>

#include <functional>

#include "engine/cli/command_line.h"
#include "engine/cli/environment.h"
#include "engine/cli/program.h"
#include "engine/cli/terminal.h"
#include "offload/result.h"

namespace headrace::engine {

struct CommandContext {
    const Environment& environment;
    Terminal& terminal;
    std::function<int()> stop_signal;  // the number of the signal that asks to stop, or 0
    const ProgramHooks& hooks;

    // Progress, for people: nothing where a command prints JSON.
    std::function<void(const std::string&)> say_unless(bool is_json) const {
        if (is_json) return {};
        return [this](const std::string& line) { terminal.say(line); };
    }

    // A request to a drive does not end: the kernel may still write to memory, so nothing is
    // undone.
    std::function<void(const std::string&)> leave_when_stuck() const {
        return [&said = terminal](const std::string& why) {
            said.fail(why);
            ::_exit(static_cast<int>(offload::ErrorCode::failed));
        };
    }
};

offload::Status run_command(const TrainCommand& command, const CommandContext& context);
offload::Status run_command(const PlanCommand& command, const CommandContext& context);
offload::Status run_command(const RehearseCommand& command, const CommandContext& context);
offload::Status run_command(const TuneCommand& command, const CommandContext& context);
offload::Status run_command(const ExportCommand& command, const CommandContext& context);
// Its table, without the rates that --probe asks for.
offload::Status run_command(const DoctorCommand& command, const CommandContext& context);
// What --probe asks for. Computes.
offload::Status probe_machine(const DoctorCommand& command, const CommandContext& context);
offload::Status run_command(const InitCommand& command, const CommandContext& context);
offload::Status run_command(const StoreCommand& command, const CommandContext& context);
offload::Status run_command(const BenchNvmeCommand& command, const CommandContext& context);
offload::Status run_command(const BenchAdamCommand& command, const CommandContext& context);
offload::Status run_command(const BenchLinkCommand& command, const CommandContext& context);
offload::Status run_command(const BenchGemmCommand& command, const CommandContext& context);
offload::Status run_command(const BenchStepCommand& command, const CommandContext& context);
offload::Status run_command(const RandomModelCommand& command, const CommandContext& context);

}  // namespace headrace::engine
