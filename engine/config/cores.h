// The cores this process may compute on, as hwloc sees them.
#pragma once

#include <cstdint>

namespace headrace::engine {

// Physical cores with at least one hardware thread in this process's binding (taskset, cpuset).
// Hardware threads of one core share its vector units, so kernels gain nothing from a second one.
// At least 1. Takes some milliseconds.
int64_t usable_core_count();

}  // namespace headrace::engine
