#include "kernels/host/numa.h"

#include <hwloc.h>

#include <atomic>
#include <memory>

#include "offload/check.h"

namespace headrace::kernels {

namespace {

struct Free {
    void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
    void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Topology = std::unique_ptr<hwloc_topology, Free>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Free>;

Bitmap make_bitmap() {
    Bitmap bitmap(hwloc_bitmap_alloc());
    CHECK(bitmap != nullptr);
    return bitmap;
}

}  // namespace

std::vector<unsigned> nodes_near(hwloc_topology* topology, const hwloc_bitmap_s* cores) {
    std::vector<unsigned> nodes;
    hwloc_obj_t node = nullptr;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
        const bool has_memory = node->attr->numanode.local_memory > 0;
        const bool is_near = hwloc_bitmap_intersects(node->cpuset, cores) != 0;
        if (has_memory && is_near) nodes.push_back(node->os_index);
    }
    return nodes;
}

size_t spread_over_nodes(std::span<std::byte> area) {
    // Looking at the machine takes some milliseconds; most have one node, which does not change.
    static std::atomic<bool> has_one_node = false;
    if (has_one_node) return 1;
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) return 1;
    const Topology topology(raw);
    if (hwloc_topology_load(raw) != 0) return 1;
    const Bitmap cores = make_bitmap();
    if (hwloc_get_cpubind(raw, cores.get(), HWLOC_CPUBIND_PROCESS) != 0) {
        hwloc_bitmap_fill(cores.get());
    }
    const std::vector<unsigned> nodes = nodes_near(raw, cores.get());
    has_one_node = nodes.size() < 2;
    if (has_one_node) return 1;
    const Bitmap set = make_bitmap();
    for (const unsigned node : nodes) CHECK_EQ(hwloc_bitmap_set(set.get(), node), 0);
    const int refused = hwloc_set_area_membind(raw, area.data(), area.size(), set.get(),
                                               HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
    return refused == 0 ? nodes.size() : 1;
}

}  // namespace headrace::kernels
