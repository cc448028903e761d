#include "engine/config/cores.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "offload/check.h"

namespace headrace::engine {

namespace {

struct FreeTopology {
    void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};

struct FreeBitmap {
    void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};

}  // namespace

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
    return std::max<int64_t>(1, core_count);
}

}  // namespace headrace::engine
