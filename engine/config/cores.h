// The cores this process may compute on: those that hwloc sees, and the time on them that its
// cgroup grants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace::engine {

// Physical cores with at least one hardware thread in this process's binding (taskset, cpuset).
// Hardware threads of one core share its vector units, so kernels gain nothing from a second one.
// No more than granted_cores, rounded up: a thread more than that only waits. At least 1. Takes
// some milliseconds.
int64_t usable_core_count();

// Processor time per time that the tightest limit from this process's cgroup up to the root grants
// (cpu.max of version 2, cpu.cfs_quota_us of version 1); absent where there is none. `root` stands
// before /proc and /sys in tests.
std::optional<double> granted_cores(const std::string& root = "");

}  // namespace headrace::engine
