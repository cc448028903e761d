// NUMA nodes: on machines with several, each with its own memory and cores, the pages of a slab are
// dealt out to the nodes in turn. Left alone they would all lie on the node whose thread touched
// them first, and the others' memory bandwidth would do nothing for an update, which is bound by
// it. Parts pass through the same slots one after another, and every thread works on a range of
// every part, so no thread has a slot of its own to lie near: the same mixture for all is the fair
// deal, and needs no thread to be bound.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace headrace::kernels {

// The numbers (of the operating system) of the nodes that have memory, and a core in `cores`.
// Nodes of memory alone (slower, as a rule) are not among them.
std::vector<unsigned> nodes_near(hwloc_topology* topology, const hwloc_bitmap_s* cores);

// Deals the pages of `area`, which nobody has touched yet, out to the nodes of the cores that this
// process may run on. Returns their number; with one nothing is done. A system that refuses (a
// container without the right) is no error: the pages lie where they are touched.
size_t spread_over_nodes(std::span<std::byte> area);

}  // namespace headrace::kernels
