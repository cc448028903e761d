// HostMemory: the memory of the host device. Its ram tier is memory; its gpu tier is the memory of
// a pretended card, with the capacity it is given. A capacity is hard: what goes beyond it is
// refused before a byte is reserved.
//
// A slab begins at a multiple of 2 MiB and is advised to be backed by huge pages (they double the
// throughput of I/O and help the update), lies on all NUMA nodes alike (numa.h), has exactly the
// size asked for, reads as zeros, and costs no memory until it is touched. It is unmapped with its
// HostMemory. Small pages are for measuring what the huge ones bring.
#pragma once

#include <array>

#include "offload/memory.h"
#include "offload/units.h"

namespace headrace::kernels {

inline constexpr uint64_t huge_page_bytes = 2 * offload::mib;

enum class Pages : uint8_t { huge, small };

// What the gpu tier is made of: memory, or addresses alone, for a card that is only pretended: who
// touches them dies, and they cost nothing.
enum class CardMemory : uint8_t { memory, addresses };

class HostMemory final : public offload::Memory {
  public:
    struct Options {
        uint64_t gpu_capacity_bytes = 0;
        uint64_t ram_capacity_bytes = 0;
        Pages pages = Pages::huge;
        CardMemory card = CardMemory::memory;
    };

    explicit HostMemory(Options options) : options_(options) {}
    ~HostMemory() override;
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    offload::Result<std::span<std::byte>> take(offload::Tier tier, uint64_t size_bytes) override;

  private:
    uint64_t capacity_bytes(offload::Tier tier) const;

    Options options_;
    std::array<std::span<std::byte>, 2> slabs_;  // gpu, ram
    std::array<bool, 2> taken_{};
};

}  // namespace headrace::kernels
