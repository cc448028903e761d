#include "engine/plan/places.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::engine {

namespace {

std::string name_of_place(const offload::Layout& layout, const offload::Slot& slot) {
    using offload::Kind;
    if (slot.kind != Kind::hi && slot.kind != Kind::opt && slot.kind != Kind::stash) {
        return fmt::format("{} {}", name_of(slot.kind), slot.of);
    }
    const uint32_t layer = layout.parts[slot.of].layer;
    return fmt::format("{} {}/{}", name_of(slot.kind), layout.specs[layer].name,
                       slot.of - layout.layers[layer].first_part);
}

}  // namespace

std::vector<offload::PlaceSpec> places_of(const offload::Layout& layout,
                                          const std::vector<offload::Slot>& slots) {
    const auto is_place = [](const offload::Slot& slot) {
        return slot.tier == offload::Tier::nvme;
    };
    std::vector<offload::PlaceSpec> places(
        static_cast<size_t>(std::ranges::count_if(slots, is_place)));
    for (const offload::Slot& slot : slots) {
        if (!is_place(slot)) continue;
        CHECK_LT(slot.offset_bytes, places.size());
        offload::PlaceSpec& place = places[slot.offset_bytes];
        CHECK(place.name.empty());
        place = {.name = name_of_place(layout, slot),
                 .size_bytes = slot.size_bytes,
                 .copies = slot.copies};
    }
    return places;
}

}  // namespace headrace::engine
