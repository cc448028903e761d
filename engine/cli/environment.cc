#include "engine/cli/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "engine/config/cores.h"
#include "engine/config/machine.h"
#include "engine/config/machine_file.h"
#include "offload/check.h"

namespace headrace::engine {

namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

std::filesystem::path cache_folder() {
    std::filesystem::path cache = variable("HEADRACE_CACHE");
    if (!cache.empty()) return cache;
    std::filesystem::path all = variable("XDG_CACHE_HOME");
    if (all.empty()) all = std::filesystem::path(variable("HOME")) / ".cache";
    return all / "headrace";
}

std::string python_of_setup() {
    std::filesystem::path venv = variable("HEADRACE_VENV");
    if (venv.empty()) venv = cache_folder() / "venv";
    return (venv / "bin" / "python").string();
}

// "WORLD_SIZE=2": the first variable of torchrun, Open MPI, other MPIs or srun that counts several.
std::string several_processes() {
    for (const char* name :
         {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
        const std::string value = variable(name);
        if (std::atoll(value.c_str()) > 1) return name + ("=" + value);
    }
    return "";
}

}  // namespace

Environment read_environment() {
    Environment environment;
    environment.python = variable("HEADRACE_PYTHON");
    if (environment.python.empty()) environment.python = python_of_setup();
    if (::access(environment.python.c_str(), X_OK) != 0) environment.python = "python3";
    environment.scripts_dir = HEADRACE_SCRIPTS_DIR;
    environment.hub_cache = hub_cache_from([](const char* name) { return std::getenv(name); });
    // Without a home it would land in the working folder: then nothing is kept.
    const std::filesystem::path cache = cache_folder();
    if (cache.is_absolute()) {
        environment.drive_cache = cache / "drives.json";
        environment.measured_machine =
            measured_machine_path(cache, read_machine().cpu_kind, usable_core_count());
    }
    environment.several_processes = several_processes();
    environment.has_color = ::isatty(STDOUT_FILENO) == 1 && variable("NO_COLOR").empty();
    CHECK(!environment.python.empty());
    CHECK(!environment.scripts_dir.empty());
    return environment;
}

}  // namespace headrace::engine
