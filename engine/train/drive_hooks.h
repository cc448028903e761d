// DriveHooks: what a test hangs between a run and its drives. Empty in the program.
#pragma once

#include <chrono>
#include <optional>

#include "nvme/file_operations.h"

namespace headrace::engine {

struct DriveHooks {
    nvme::FileOperations operations{};  // faults
    // When a request that does not end counts as stuck, where the default is too long to wait for.
    std::optional<std::chrono::nanoseconds> stuck_after{};
};

}  // namespace headrace::engine
