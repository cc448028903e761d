// DriveHooks: what a test hangs between a run and its drives, and how patient it is. Empty in the
// program.
#pragma once

#include <chrono>
#include <optional>

#include "nvme/file_operations.h"
#include "nvme/striping.h"

namespace headrace::engine {

struct DriveHooks {
    nvme::FileOperations operations{};  // faults
    nvme::DrivesOf drives_of{};         // which paths count as drives of their own
    // When a request that does not end counts as stuck, where the default is too long to wait for.
    std::optional<std::chrono::nanoseconds> stuck_after{};
    // How often a wait is told of, where the default (engine/train/wait_watch.h) is too rare.
    std::optional<std::chrono::nanoseconds> wait_told_every{};
};

}  // namespace headrace::engine
