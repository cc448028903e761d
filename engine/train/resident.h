// The memory of this process as the kernel counts it.
#pragma once

#include <cstdint>

namespace headrace::engine {

struct ResidentMemory {
    uint64_t now_bytes = 0;   // VmRSS
    uint64_t peak_bytes = 0;  // VmHWM: the most so far
};

// 0 where /proc/self/status cannot be read.
ResidentMemory read_resident_memory();

}  // namespace headrace::engine
