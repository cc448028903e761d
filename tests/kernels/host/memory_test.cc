// Goal: slabs are aligned, exact in size, free until touched and refused beyond their capacity with
// the numbers; copies and fills do what they say.
// Method: resident memory from /proc/self/statm around takes and touches; error texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/host/copy.h"
#include "kernels/host/fill.h"
#include "kernels/host/slab.h"
#include "offload/dtype.h"

namespace headrace::kernels {

using offload::gib;
using offload::mib;
using offload::Tier;

namespace {

uint64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    uint64_t total_pages = 0, resident_pages = 0;
    statm >> total_pages >> resident_pages;
    return resident_pages * offload::page_bytes;
}

void touch(std::span<std::byte> memory) {
    for (uint64_t at = 0; at < memory.size(); at += offload::page_bytes) memory[at] = std::byte{1};
}

}  // namespace

TEST(HostMemory, slabs_are_aligned_exact_and_zero) {
    HostMemory memory({.gpu_capacity_bytes = 8 * mib, .ram_capacity_bytes = 16 * mib});
    const auto gpu = memory.take(Tier::gpu, 8 * mib);
    const auto ram = memory.take(Tier::ram, 3 * mib + 4096);
    ASSERT_TRUE(gpu.ok());
    ASSERT_TRUE(ram.ok());
    for (const std::span<std::byte> slab : {*gpu, *ram}) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(slab.data()) % huge_page_bytes, 0u);
        for (const std::byte value : slab) ASSERT_EQ(value, std::byte{0});
    }
    EXPECT_EQ(gpu->size(), 8 * mib);
    EXPECT_EQ(ram->size(), 3 * mib + 4096);
}

TEST(HostMemory, nothing_is_resident_until_touched) {
    const uint64_t before_bytes = resident_bytes();
    HostMemory memory({.gpu_capacity_bytes = 8 * gib, .ram_capacity_bytes = 0});
    ASSERT_TRUE(memory.take(Tier::gpu, 4 * gib).ok());
    EXPECT_LT(resident_bytes(), before_bytes + 4 * mib);
}

// A pretended card is addresses alone: far more than this machine has, and deadly to touch.
TEST(HostMemory, addresses_are_no_memory) {
    HostMemory memory({.gpu_capacity_bytes = 512 * gib,
                       .ram_capacity_bytes = 2 * mib,
                       .card = CardMemory::addresses});
    const auto gpu = memory.take(Tier::gpu, 500 * gib);
    const auto ram = memory.take(Tier::ram, 2 * mib);
    ASSERT_TRUE(gpu.ok());
    ASSERT_TRUE(ram.ok());
    touch(*ram);
    EXPECT_DEATH(touch(gpu->first(1)), "");
}

TEST(HostMemory, pin_1_touched_slabs_cost_what_was_asked) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer keeps a shadow of as many bytes again";
#endif
    const uint64_t asked_bytes = 33 * mib + 4096;
    const uint64_t before_bytes = resident_bytes();
    HostMemory memory({.gpu_capacity_bytes = asked_bytes, .ram_capacity_bytes = asked_bytes});
    for (const Tier tier : {Tier::gpu, Tier::ram}) {
        const auto slab = memory.take(tier, asked_bytes);
        ASSERT_TRUE(slab.ok());
        touch(*slab);
    }
    const uint64_t grown_bytes = resident_bytes() - before_bytes;
    EXPECT_GE(grown_bytes, 2 * asked_bytes);
    EXPECT_LE(static_cast<double>(grown_bytes), 1.02 * 2 * static_cast<double>(asked_bytes));
}

// The kernel notes what was advised of each mapping: hg and nh.
TEST(HostMemory, pages_are_advised_to_be_huge_unless_small_ones_are_asked_for) {
    for (const Pages pages : {Pages::huge, Pages::small}) {
        HostMemory memory({.ram_capacity_bytes = 4 * mib, .pages = pages});
        const auto slab = memory.take(Tier::ram, 4 * mib);
        ASSERT_TRUE(slab.ok());
        char begin[32];
        std::snprintf(begin, sizeof(begin), "%lx-", reinterpret_cast<unsigned long>(slab->data()));
        std::ifstream maps("/proc/self/smaps");
        std::string line;
        while (std::getline(maps, line) && !line.starts_with(begin)) {
        }
        while (std::getline(maps, line) && !line.starts_with("VmFlags:")) {
        }
        if (line.empty()) GTEST_SKIP() << "this kernel has no smaps";
        EXPECT_EQ(line.find(" hg") != std::string::npos, pages == Pages::huge) << line;
        EXPECT_EQ(line.find(" nh") != std::string::npos, pages == Pages::small) << line;
    }
}

TEST(HostMemory, memory_goes_back_with_its_owner) {
    const uint64_t before_bytes = resident_bytes();
    {
        HostMemory memory({.gpu_capacity_bytes = 0, .ram_capacity_bytes = 32 * mib});
        const auto slab = memory.take(Tier::ram, 32 * mib);
        ASSERT_TRUE(slab.ok());
        touch(*slab);
    }
    EXPECT_LT(resident_bytes(), before_bytes + 4 * mib);
}

TEST(HostMemory, more_than_the_capacity_is_refused_with_numbers) {
    HostMemory memory({.gpu_capacity_bytes = 768 * mib, .ram_capacity_bytes = 256 * mib});
    const auto slab = memory.take(Tier::ram, 300 * mib);
    ASSERT_FALSE(slab.ok());
    EXPECT_EQ(slab.error().code, offload::ErrorCode::does_not_fit);
    for (const char* words : {"300", "256", "44.0 MiB", "ram_budget"}) {
        EXPECT_NE(slab.error().text().find(words), std::string::npos) << slab.error().text();
    }
    EXPECT_TRUE(memory.take(Tier::ram, 256 * mib).ok());
}

TEST(HostMemory, what_the_system_refuses_is_an_error) {
    const uint64_t absurd_bytes = uint64_t{1} << 52;
    HostMemory memory({.gpu_capacity_bytes = absurd_bytes, .ram_capacity_bytes = 0});
    const auto slab = memory.take(Tier::gpu, absurd_bytes);
    ASSERT_FALSE(slab.ok());
    EXPECT_EQ(slab.error().code, offload::ErrorCode::does_not_fit);
    EXPECT_NE(slab.error().text().find("gpu_budget"), std::string::npos);
}

TEST(HostMemory, nothing_is_taken_for_nothing) {
    HostMemory memory({.gpu_capacity_bytes = 0, .ram_capacity_bytes = 0});
    const auto slab = memory.take(Tier::gpu, 0);
    ASSERT_TRUE(slab.ok());
    EXPECT_TRUE(slab->empty());
}

TEST(HostMemoryDeathTest, one_slab_per_tier_in_pages) {
    HostMemory memory({.gpu_capacity_bytes = mib, .ram_capacity_bytes = mib});
    EXPECT_DEATH(static_cast<void>(memory.take(Tier::nvme, 4096)), "Tier::gpu");
    EXPECT_DEATH(static_cast<void>(memory.take(Tier::ram, 100)), "page_bytes");
    ASSERT_TRUE(memory.take(Tier::ram, 4096).ok());
    EXPECT_DEATH(static_cast<void>(memory.take(Tier::ram, 4096)), "taken_");
}

TEST(Copy, copies_and_refuses_overlap) {
    std::vector<std::byte> memory(100);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
    const std::span<std::byte> all(memory);
    copy_bytes(all.subspan(50, 50), all.subspan(0, 50));
    for (size_t i = 0; i < 50; ++i) EXPECT_EQ(memory[50 + i], static_cast<std::byte>(i));
    copy_bytes({}, {});
    EXPECT_DEATH(copy_bytes(all.subspan(0, 10), all.subspan(9, 10)), "first");
    EXPECT_DEATH(copy_bytes(all.subspan(0, 10), all.subspan(20, 11)), "size");
}

// Long copies go another way, whole lines at a time: every byte arrives and none beside them is
// touched, wherever source and target begin and end within a line.
TEST(Copy, long_ones_from_anywhere_to_anywhere) {
    constexpr size_t guard_bytes = 64;
    std::vector<std::byte> source(mib + 4 * guard_bytes);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
    std::vector<std::byte> target(source.size());
    for (const size_t size_bytes : {mib - 1, mib, mib + 1, mib + 63, mib + 64, mib + 127}) {
        for (const size_t from : {0, 1, 16, 33, 63}) {
            for (const size_t to : {0, 1, 32, 63}) {
                std::ranges::fill(target, std::byte{0xA5});
                copy_bytes(std::span(target).subspan(guard_bytes + to, size_bytes),
                           std::span(source).subspan(from, size_bytes));
                const auto begin = target.begin() + guard_bytes + to;
                const auto end = begin + static_cast<ptrdiff_t>(size_bytes);
                const auto is_guard = [](std::byte value) { return value == std::byte{0xA5}; };
                ASSERT_TRUE(std::equal(begin, end, source.begin() + from))
                    << size_bytes << " bytes from " << from << " to " << to;
                ASSERT_TRUE(std::all_of(target.begin(), begin, is_guard));
                ASSERT_TRUE(std::all_of(end, target.end(), is_guard));
            }
        }
    }
}

TEST(Fill, nan_is_nan_in_every_type_and_zero_is_zero) {
    std::vector<uint32_t> memory(16, 1);
    const auto bytes = std::as_writable_bytes(std::span(memory));
    fill_nan(bytes.first(32));
    for (size_t i = 0; i < 8; ++i) {
        EXPECT_TRUE(std::isnan(std::bit_cast<float>(memory[i])));
        EXPECT_TRUE(std::isnan(offload::bf16_to_float(static_cast<uint16_t>(memory[i]))));
    }
    EXPECT_EQ(memory[8], 1u);
    fill_zero(bytes);
    for (const uint32_t value : memory) EXPECT_EQ(value, 0u);
}

}  // namespace headrace::kernels
