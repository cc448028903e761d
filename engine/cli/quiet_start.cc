#include "engine/cli/quiet_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "offload/check.h"

namespace headrace::engine {

namespace {

constexpr const char* guard = "HEADRACE_STARTED_WITHOUT_SPINNING";

}  // namespace

std::filesystem::path running_program() {
    std::error_code unknown;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    return unknown ? "/proc/self/exe" : program;
}

bool has_chosen_how_to_wait() {
    for (const char* name : {guard, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
        if (std::getenv(name) != nullptr) return true;
    }
    return false;
}

offload::Error start_quietly(const std::filesystem::path& program, char** argument_values) {
    CHECK(argument_values != nullptr);
    CHECK(argument_values[0] != nullptr);
    const bool is_set = has_chosen_how_to_wait() || (setenv(guard, "1", 1) == 0 &&
                                                     setenv("OMP_WAIT_POLICY", "passive", 1) == 0 &&
                                                     setenv("GOMP_SPINCOUNT", "0", 1) == 0);
    if (is_set) execve(program.c_str(), argument_values, environ);
    return {offload::ErrorCode::failed,
            fmt::format("cannot start '{}' with OMP_WAIT_POLICY=passive: {}", program.string(),
                        std::generic_category().message(errno)),
            ""};
}

}  // namespace headrace::engine
