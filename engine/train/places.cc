#include "engine/train/places.h"

#include <fmt/format.h>

#include <array>

namespace headrace::engine {

std::vector<offload::PlaceSpec> places_of(const std::vector<offload::Slot>& slots) {
    std::vector<offload::PlaceSpec> places;
    std::array<uint32_t, 11> count_of_kind = {};
    for (const offload::Slot& slot : slots) {
        const uint32_t number = count_of_kind[static_cast<size_t>(slot.kind)]++;
        if (slot.tier != offload::Tier::nvme) continue;
        CHECK_EQ(slot.offset_bytes, places.size());
        places.push_back({.name = fmt::format("{} {}", name_of(slot.kind), number),
                          .size_bytes = slot.size_bytes,
                          .copy_count = slot.copy_count});
    }
    return places;
}

}  // namespace headrace::engine
