// The one clock of the engine's measurements: monotone, in nanoseconds, of no particular beginning.
#pragma once

#include <chrono>
#include <cstdint>

namespace headrace::engine {

inline int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace headrace::engine
