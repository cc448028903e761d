// The clock of this folder's statistics, write limit and watchdog: monotonic, in nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace headrace::nvme {

inline uint64_t now_ns() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

}  // namespace headrace::nvme
