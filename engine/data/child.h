// Runs one child process to its end and keeps what it said. The only place that starts a process.
#pragma once

#include <string>
#include <vector>

#include "offload/result.h"

namespace headrace::engine {

struct ChildOutcome {
    int exit_code = 0;   // 128 + n where signal n ended it
    std::string output;  // the last child_output_bytes_max bytes of stdout and stderr together
};

inline constexpr size_t child_output_bytes_max = 4096;

// arguments[0] is a path, or a name looked up in PATH. Its stdin is empty. Blocks until it has
// ended. Error: failed, where it cannot be started.
offload::Result<ChildOutcome> run_child(const std::vector<std::string>& arguments);

}  // namespace headrace::engine
