#include "engine/train/resident.h"

#include <fstream>
#include <string>

#include "offload/units.h"

namespace headrace::engine {

ResidentMemory read_resident_memory() {
    ResidentMemory memory;
    std::ifstream status("/proc/self/status");
    std::string key;
    while (status >> key) {
        uint64_t* const target = key == "VmRSS:"   ? &memory.now_bytes
                                 : key == "VmHWM:" ? &memory.peak_bytes
                                                   : nullptr;
        if (target != nullptr && status >> *target) *target *= offload::kib;
        status.ignore(1 << 16, '\n');
    }
    return memory;
}

}  // namespace headrace::engine
