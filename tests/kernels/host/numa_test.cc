// Goal: slabs are spread over the nodes whose cores the process may use, and over no others.
// Method: hwloc's made-up machines; on this one, memory that has been spread is memory like any
// other. That the kernel deals pages out can only be seen where there are two nodes: there a test
// asks it where each page lies.
#include "kernels/host/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>
#include <sys/mman.h>

#include <array>
#include <set>
#include <string>

#include "offload/units.h"

namespace headrace::kernels {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The nodes near the cores first to last of a made-up machine.
std::vector<unsigned> nodes_of(const std::string& machine, unsigned first, int last) {
    hwloc_topology_t topology = nullptr;
    EXPECT_EQ(hwloc_topology_init(&topology), 0);
    EXPECT_EQ(hwloc_topology_set_synthetic(topology, machine.c_str()), 0);
    EXPECT_EQ(hwloc_topology_load(topology), 0);
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    EXPECT_EQ(hwloc_bitmap_set_range(cores, first, last), 0);
    const std::vector<unsigned> nodes = nodes_near(topology, cores);
    hwloc_bitmap_free(cores);
    hwloc_topology_destroy(topology);
    return nodes;
}

TEST(Numa, TwoSocketsHaveTwoNodes) {
    EXPECT_THAT(nodes_of("package:2 [numa(memory=1GB)] core:8 pu:2", 0, 31), ElementsAre(0, 1));
    EXPECT_THAT(nodes_of("package:2 [numa(memory=1GB)] core:8 pu:2", 0, -1), ElementsAre(0, 1));
}

TEST(Numa, AProcessBoundToOneSocketHasItsNode) {
    EXPECT_THAT(nodes_of("package:2 [numa(memory=1GB)] core:8 pu:1", 0, 7), ElementsAre(0));
    EXPECT_THAT(nodes_of("package:2 [numa(memory=1GB)] core:8 pu:1", 8, 15), ElementsAre(1));
    EXPECT_THAT(nodes_of("package:2 [numa(memory=1GB)] core:8 pu:1", 7, 8), ElementsAre(0, 1));
    EXPECT_THAT(nodes_of("package:2 [numa(memory=1GB)] core:8 pu:1", 16, 20), IsEmpty());
}

TEST(Numa, FourNodesOfOneSocket) {
    EXPECT_THAT(nodes_of("package:1 group:4 [numa(memory=1GB)] core:4 pu:1", 0, 15),
                ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(nodes_of("package:1 group:4 [numa(memory=1GB)] core:4 pu:1", 4, 11),
                ElementsAre(1, 2));
    EXPECT_THAT(nodes_of("core:4 pu:1", 0, 3), ElementsAre(0));
}

TEST(Numa, PagesOfThisMachineAreDealtOut) {
    constexpr size_t page_count = 4096;
    constexpr size_t size_bytes = page_count * offload::page_bytes;
    void* mapped =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    const std::span<std::byte> area(static_cast<std::byte*>(mapped), size_bytes);
    const size_t node_count = spread_over_nodes(area);
    EXPECT_GE(node_count, 1u);
    for (size_t at = 0; at < size_bytes; at += offload::page_bytes) area[at] = std::byte{1};
    hwloc_topology_t topology = nullptr;
    ASSERT_EQ(hwloc_topology_init(&topology), 0);
    ASSERT_EQ(hwloc_topology_load(topology), 0);
    hwloc_bitmap_t where = hwloc_bitmap_alloc();
    const int known =
        hwloc_get_area_memlocation(topology, mapped, size_bytes, where, HWLOC_MEMBIND_BYNODESET);
    if (known == 0) {
        EXPECT_EQ(static_cast<size_t>(hwloc_bitmap_weight(where)), node_count);
    }
    hwloc_bitmap_free(where);
    hwloc_topology_destroy(topology);
    EXPECT_EQ(munmap(mapped, size_bytes), 0);
}

}  // namespace
}  // namespace headrace::kernels
