#include "kernels/host/slab.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernels/host/numa.h"

namespace headrace::kernels {

using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Tier;

namespace {

// Reserves a little more than asked, keeps the part that begins at a multiple of 2 MiB and gives
// the rest back. The end is not rounded up: pages of 4 KiB serve it. Null when the system refuses.
std::byte* map_aligned(uint64_t size_bytes, Pages pages, int protection) {
    const uint64_t reserved_bytes = size_bytes + huge_page_bytes;
    void* reserved = mmap(nullptr, reserved_bytes, protection,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return nullptr;
    auto* begin = static_cast<std::byte*>(reserved);
    const auto address = reinterpret_cast<uintptr_t>(begin);
    const uint64_t before_bytes = offload::align_up(address, huge_page_bytes) - address;
    const uint64_t after_bytes = huge_page_bytes - before_bytes;
    std::byte* slab = begin + before_bytes;
    if (before_bytes > 0) CHECK_EQ(munmap(begin, before_bytes), 0);
    if (after_bytes > 0) CHECK_EQ(munmap(slab + size_bytes, after_bytes), 0);
    if (protection != PROT_NONE) spread_over_nodes({slab, size_bytes});
    // Advice: where huge pages are switched off, small ones serve.
    const int advice = pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    static_cast<void>(madvise(slab, size_bytes, advice));
    return slab;
}

}  // namespace

uint64_t HostMemory::capacity_bytes(Tier tier) const {
    return tier == Tier::gpu ? options_.gpu_capacity_bytes : options_.ram_capacity_bytes;
}

offload::Result<std::span<std::byte>> HostMemory::take(Tier tier, uint64_t size_bytes) {
    CHECK(tier == Tier::gpu || tier == Tier::ram);
    CHECK_EQ(size_bytes % offload::page_bytes, 0u);
    const auto index = static_cast<size_t>(tier);
    CHECK(!taken_[index]);
    const std::string name(name_of(tier));
    if (size_bytes > capacity_bytes(tier)) {
        return Error{ErrorCode::does_not_fit,
                     "taking " + format_bytes(size_bytes) + " (" + std::to_string(size_bytes) +
                         " bytes) of " + name + " from a capacity of " +
                         format_bytes(capacity_bytes(tier)) + ": raise " + name + "_budget by " +
                         format_bytes(size_bytes - capacity_bytes(tier)) +
                         ", or place less in this tier",
                     ""};
    }
    if (size_bytes > 0) {
        const bool is_memory = tier == Tier::ram || options_.card == CardMemory::memory;
        std::byte* slab =
            map_aligned(size_bytes, options_.pages, is_memory ? PROT_READ | PROT_WRITE : PROT_NONE);
        if (const int reason = errno; slab == nullptr) {
            return Error{ErrorCode::does_not_fit,
                         "reserving " + format_bytes(size_bytes) + " of memory for the " + name +
                             " tier; the machine has less free than its budget (limits of the "
                             "container or ulimit -v count too): lower " +
                             name + "_budget",
                         std::strerror(reason)};
        }
        slabs_[index] = {slab, size_bytes};
    }
    taken_[index] = true;
    return slabs_[index];
}

HostMemory::~HostMemory() {
    for (std::span<std::byte> slab : slabs_) {
        if (!slab.empty()) CHECK_EQ(munmap(slab.data(), slab.size()), 0);
    }
}

}  // namespace headrace::kernels
