// The program `headrace`: from arguments to an exit code. The only place that turns an Error into
// one.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/train/drive_hooks.h"

namespace headrace::engine {

// What a test may hang into the program; all empty in the one that is installed.
struct ProgramHooks {
    // After each op of a training run, with the number of ops done so far.
    std::function<void(int64_t op_count)> op_done{};
    DriveHooks drives{};
};

int run_program(int argument_count, char** argument_values, const ProgramHooks& hooks = {});

}  // namespace headrace::engine
