// Goal: PIN-1: memory that a run takes and locks costs what was asked for, whatever the size: a
// request of 2.25 GiB, one of 1.125 GiB and 33 of 100 MB grow resident and locked memory by no more
// than 1.02 of their sum (an allocator that rounds up to powers of two makes that 1.8).
// Method: slabs of the host device, touched, and registered with the rings of a store on a real
// drive, as a run does; the kernel counts. A sixteenth of the case's sizes by default; the whole
// sizes, 6.7 GB, in engine_train_resident_long_test.
#include "engine/train/resident.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/host/slab.h"
#include "nvme/nvme_store.h"
#include "offload/units.h"
#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

using offload::gib;
using offload::kib;
using offload::mib;

#ifdef HEADRACE_WHOLE_SIZES
constexpr uint64_t divisor = 1;
#else
constexpr uint64_t divisor = 16;
#endif
constexpr double growth_max = 1.02;

uint64_t status_bytes(const std::string& file, const std::string& name) {
    std::ifstream status(file);
    std::string word;
    while (status >> word) {
        uint64_t size_kib = 0;
        if (word == name && status >> size_kib) return size_kib * kib;
    }
    return 0;
}

uint64_t process_bytes(const std::string& name) {
    return status_bytes("/proc/self/status", name);
}

std::vector<uint64_t> sizes_of_the_case() {
    std::vector<uint64_t> sizes = {9 * gib / 4 / divisor, 9 * gib / 8 / divisor};
    const uint64_t small_bytes = offload::align_up(100'000'000 / divisor, offload::page_bytes);
    sizes.insert(sizes.end(), 33, small_bytes);
    return sizes;
}

TEST(Pinned, pin_1_locked_slabs_cost_what_was_asked) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
    const std::vector<uint64_t> sizes = sizes_of_the_case();
    const uint64_t asked_bytes = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    const uint64_t free_bytes = status_bytes("/proc/meminfo", "MemAvailable:");
    if (free_bytes < 2 * asked_bytes) GTEST_SKIP() << "it needs twice " << asked_bytes << " bytes";
    TestFolder folder;
    const uint64_t resident_before = read_resident_memory().now_bytes;
    const uint64_t pinned_before = process_bytes("VmPin:");
    const uint64_t locked_before = process_bytes("VmLck:");
    std::vector<std::unique_ptr<kernels::HostMemory>> memories;
    nvme::StoreOptions options{.paths = {folder.path("")}, .run_name = "pin"};
    options.places = {{.name = "place", .size_bytes = mib, .copies = offload::Copies::one}};
    for (const uint64_t size_bytes : sizes) {
        memories.push_back(std::make_unique<kernels::HostMemory>(
            kernels::HostMemory::Options{.ram_capacity_bytes = size_bytes}));
        const auto slab = memories.back()->take(offload::Tier::ram, size_bytes);
        ASSERT_TRUE(slab.ok()) << slab.error().text();
        for (uint64_t at = 0; at < size_bytes; at += offload::page_bytes) {
            (*slab)[at] = std::byte{1};
        }
        options.buffers.push_back(*slab);
    }
    const auto store = nvme::open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    const auto asked = static_cast<double>(asked_bytes);
    const auto resident = static_cast<double>(read_resident_memory().now_bytes - resident_before);
    EXPECT_GE(resident, asked);
    EXPECT_LE(resident, growth_max * asked);
    const uint64_t registered_bytes = (*store)->registered_bytes();
    const uint64_t held_bytes =
        process_bytes("VmPin:") - pinned_before + process_bytes("VmLck:") - locked_before;
    EXPECT_LE(static_cast<double>(held_bytes), growth_max * asked);
    if (registered_bytes == 0) GTEST_SKIP() << "not locked here: " << (*store)->notes()[0];
    EXPECT_EQ(registered_bytes, asked_bytes);
    EXPECT_GE(held_bytes, asked_bytes);
}

}  // namespace
}  // namespace headrace::engine
