#include "engine/config/cores.h"

#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "offload/check.h"

namespace headrace::engine {

namespace fs = std::filesystem;

namespace {

struct FreeTopology {
    void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};

struct FreeBitmap {
    void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};

// Quota and period of one cgroup, in microseconds; no quota is "max", or -1 in version 1.
std::optional<double> quota_over_period(const fs::path& folder) {
    double quota_us = 0, period_us = 0;
    std::ifstream both(folder / "cpu.max");
    if (!(both >> quota_us >> period_us)) {
        std::ifstream quota(folder / "cpu.cfs_quota_us"), period(folder / "cpu.cfs_period_us");
        if (!(quota >> quota_us) || !(period >> period_us)) return std::nullopt;
    }
    if (quota_us <= 0 || period_us <= 0) return std::nullopt;
    return quota_us / period_us;
}

// A container may see its own cgroup as the root, whatever path /proc says: folders that do not
// exist are passed over.
void tighten(const fs::path& mount, fs::path path, std::optional<double>* cores) {
    constexpr int depth_max = 64;
    for (int depth = 0; depth < depth_max; ++depth) {
        const std::optional<double> here = quota_over_period(mount / path.relative_path());
        if (here && (!*cores || *here < **cores)) *cores = here;
        if (!path.has_relative_path()) return;
        path = path.parent_path();
    }
}

}  // namespace

// Lines of /proc/self/cgroup: "0::/path" (version 2) and "4:cpu,cpuacct:/path" (version 1).
std::optional<double> granted_cores(const std::string& root) {
    const fs::path mounts = root + "/sys/fs/cgroup";
    std::optional<double> cores;
    std::ifstream lines(root + "/proc/self/cgroup");
    std::string line;
    while (std::getline(lines, line)) {
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        std::istringstream names(controllers);
        bool is_cpu = controllers.empty();
        for (std::string name; std::getline(names, name, ',');) is_cpu |= name == "cpu";
        if (is_cpu) tighten(mounts / controllers, line.substr(second + 1), &cores);
    }
    return cores;
}

int64_t usable_core_count() {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) return 1;
    const std::unique_ptr<hwloc_topology, FreeTopology> topology(raw);
    if (hwloc_topology_load(raw) != 0) return 1;
    const std::unique_ptr<hwloc_bitmap_s, FreeBitmap> binding(hwloc_bitmap_alloc());
    CHECK(binding != nullptr);
    if (hwloc_get_cpubind(raw, binding.get(), HWLOC_CPUBIND_PROCESS) != 0) {
        hwloc_bitmap_fill(binding.get());
    }
    int64_t core_count = 0;
    hwloc_obj_t core = nullptr;
    while ((core = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_CORE, core)) != nullptr) {
        if (hwloc_bitmap_intersects(core->cpuset, binding.get()) != 0) ++core_count;
    }
    const std::optional<double> granted = granted_cores();
    if (granted) core_count = std::min(core_count, static_cast<int64_t>(std::ceil(*granted)));
    return std::max<int64_t>(1, core_count);
}

}  // namespace headrace::engine
