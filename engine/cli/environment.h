// What the process's environment chooses, read once in main and handed down. No tuning: only where
// things are.
#pragma once

#include <string>

#include "engine/checkpoint/find_model.h"

namespace headrace::engine {

struct Environment {
    // HEADRACE_PYTHON, else the interpreter that scripts/setup makes (HEADRACE_VENV, or
    // headrace/venv in XDG_CACHE_HOME or ~/.cache), else python3 of PATH.
    std::string python;
    std::string scripts_dir;  // of the source tree that this program was built from
    HubCache hub_cache;       // where models named org/name are looked for
    // What is known of the drives (nvme/drive_cache.h): in HEADRACE_CACHE, or headrace in
    // XDG_CACHE_HOME or ~/.cache; empty: nowhere.
    std::string drive_cache{};
    // The rates of this machine, once they were measured: beside the former; empty: nowhere.
    std::string measured_machine{};
    // What a launcher of several processes has set (torchrun, mpirun, srun), as "WORLD_SIZE=2";
    // empty: this process is the only one.
    std::string several_processes{};
    bool has_color = false;  // a terminal, and NO_COLOR is not set
};

Environment read_environment();

}  // namespace headrace::engine
