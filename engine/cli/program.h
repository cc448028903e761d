// The program, from arguments to an exit code: the only place that turns an Error into one.
//
// It is two executables. `headrace` holds no torch, whose libraries take 0.3 s to load, so what
// plans, prints, copies or measures drives answers at once. Where a command computes layers it
// becomes `headrace_torch` (execve), which lies beside it, holds these commands too, and takes the
// same arguments.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/cli/command_line.h"
#include "engine/resume/drive_hooks.h"
#include "offload/result.h"

namespace headrace::engine {

// What a test may hang into the program; all empty in the one that is installed.
struct ProgramHooks {
    // After each op of a training run, with the number of ops done so far.
    std::function<void(int64_t op_count)> op_done{};
    DriveHooks drives{};
};

// The commands that compute layers, with torch, whatever their options; `doctor --probe` does too.
template <class Command>
inline constexpr bool always_computes =
    std::is_same_v<Command, TrainCommand> || std::is_same_v<Command, RehearseCommand> ||
    std::is_same_v<Command, TuneCommand> || std::is_same_v<Command, BenchGemmCommand> ||
    std::is_same_v<Command, BenchStepCommand>;
bool computes(const CommandLine& line);

// `headrace`. Does not return where it becomes headrace_torch.
int run_program(int argument_count, char** argument_values);

// `headrace_torch`: starts itself over once, unless its threads have been told how to wait.
int run_torch_program(int argument_count, char** argument_values, const ProgramHooks& hooks = {});

struct CommandContext;
// Does what the line asks with what the program holds, and returns the code to leave with: what
// both programs share.
using Commands = offload::Status(const CommandLine& line, const CommandContext& context);
int run_commands(const CommandLine& line, Commands commands, const ProgramHooks& hooks);

}  // namespace headrace::engine
