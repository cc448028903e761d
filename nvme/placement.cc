#include "nvme/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::page_bytes;

namespace {

// Blocks of slots [first_slot, first_slot + count) that fall on `path`.
uint64_t count_on(const std::vector<uint32_t>& pattern, uint32_t path, uint32_t first_slot,
                  uint64_t count) {
    const uint64_t cycles = count / pattern.size();
    uint64_t found = 0;
    if (cycles > 0) found = cycles * static_cast<uint64_t>(std::ranges::count(pattern, path));
    for (uint64_t i = cycles * pattern.size(); i < count; i++) {
        if (pattern[(first_slot + i) % pattern.size()] == path) found++;
    }
    return found;
}

// Lays one copy behind what is there already and moves path_bytes and next_slot on.
CopyExtent place_copy(uint64_t size_bytes, Placement& placement, uint32_t& next_slot) {
    const uint64_t block_count = offload::div_ceil(size_bytes, placement.stripe_bytes);
    CopyExtent extent{
        .first_slot = next_slot, .offset_bytes = placement.path_bytes, .size_bytes = {}};
    const uint64_t last_slot = next_slot + block_count - 1;
    const uint32_t last_path = placement.pattern[last_slot % placement.pattern.size()];
    const uint64_t missing_bytes = block_count * placement.stripe_bytes - size_bytes;
    for (uint32_t path = 0; path < placement.path_bytes.size(); path++) {
        uint64_t bytes =
            count_on(placement.pattern, path, next_slot, block_count) * placement.stripe_bytes;
        if (path == last_path) bytes -= missing_bytes;
        extent.size_bytes.push_back(bytes);
        placement.path_bytes[path] += bytes;
    }
    next_slot = static_cast<uint32_t>((last_slot + 1) % placement.pattern.size());
    CHECK_EQ(std::accumulate(extent.size_bytes.begin(), extent.size_bytes.end(), uint64_t{0}),
             size_bytes);
    return extent;
}

}  // namespace

std::vector<uint32_t> make_pattern(const std::vector<uint32_t>& weights) {
    CHECK_GE(weights.size(), 1u);
    CHECK_LE(weights.size(), path_count_max);
    for (const uint32_t weight : weights) CHECK_GE(weight, 1u);
    const uint64_t divisor = std::accumulate(weights.begin(), weights.end(), weights[0],
                                             [](uint32_t a, uint32_t b) { return std::gcd(a, b); });
    const uint64_t slot_count =
        std::accumulate(weights.begin(), weights.end(), uint64_t{0}) / divisor;
    CHECK_LE(slot_count, pattern_slots_max);
    // Each slot goes to the path that is owed most; every path is owed its weight per slot.
    std::vector<int64_t> owed(weights.size(), 0);
    std::vector<uint32_t> pattern;
    for (uint64_t slot = 0; slot < slot_count; slot++) {
        for (size_t path = 0; path < weights.size(); path++) {
            owed[path] += static_cast<int64_t>(weights[path] / divisor);
        }
        const auto richest = std::ranges::max_element(owed);
        *richest -= static_cast<int64_t>(slot_count);
        pattern.push_back(static_cast<uint32_t>(richest - owed.begin()));
    }
    CHECK_EQ(pattern.size(), slot_count);
    return pattern;
}

Placement lay_places(const std::vector<offload::PlaceSpec>& places, std::vector<uint32_t> pattern,
                     uint64_t stripe_bytes) {
    CHECK_GT(stripe_bytes, 0u);
    CHECK_EQ(stripe_bytes % page_bytes, 0u);
    CHECK(!pattern.empty());
    const uint32_t path_count = std::ranges::max(pattern) + 1;
    for (uint32_t path = 0; path < path_count; path++) CHECK(std::ranges::count(pattern, path) > 0);
    Placement placement{.stripe_bytes = stripe_bytes,
                        .pattern = std::move(pattern),
                        .copies = std::vector<std::vector<CopyExtent>>(places.size()),
                        .path_bytes = std::vector<uint64_t>(path_count, 0),
                        .durable_bytes = {}};
    uint32_t next_slot = 0;
    for (const bool are_durable : {true, false}) {
        for (size_t place = 0; place < places.size(); place++) {
            const offload::PlaceSpec& spec = places[place];
            if (is_durable(spec.copies) != are_durable) continue;
            CHECK_GT(spec.size_bytes, 0u);
            CHECK_EQ(spec.size_bytes % page_bytes, 0u);
            for (uint8_t copy = 0; copy < count_of(spec.copies); copy++) {
                placement.copies[place].push_back(
                    place_copy(spec.size_bytes, placement, next_slot));
            }
        }
        if (are_durable) placement.durable_bytes = placement.path_bytes;
    }
    return placement;
}

Placement make_placement(const std::vector<offload::PlaceSpec>& places,
                         const std::vector<uint32_t>& weights, uint64_t stripe_bytes) {
    return lay_places(places, make_pattern(weights), stripe_bytes);
}

BlockAddress address_of(const Placement& placement, CopyId id, uint64_t block) {
    DCHECK(id.place < placement.copies.size());
    DCHECK(id.copy < placement.copies[id.place].size());
    const CopyExtent& extent = placement.copies[id.place][id.copy];
    const uint32_t path = path_of(placement, id, block);
    const uint64_t before = count_on(placement.pattern, path, extent.first_slot, block);
    const uint64_t offset_bytes = extent.offset_bytes[path] + before * placement.stripe_bytes;
    CHECK_LT(before * placement.stripe_bytes, extent.size_bytes[path]);
    return {.path = path, .offset_bytes = offset_bytes};
}

const char* find_fault(const Placement& placement) {
    if (placement.stripe_bytes == 0 || placement.stripe_bytes % page_bytes != 0) {
        return "the stripe is not a multiple of the page";
    }
    for (const uint32_t path : placement.pattern) {
        if (path >= placement.path_bytes.size()) return "a slot names a path that does not exist";
    }
    for (size_t path = 0; path < placement.path_bytes.size(); path++) {
        std::vector<std::pair<uint64_t, uint64_t>> extents;  // begin, end
        for (const auto& copies : placement.copies) {
            for (const CopyExtent& copy : copies) {
                if (copy.size_bytes[path] == 0) continue;
                extents.emplace_back(copy.offset_bytes[path],
                                     copy.offset_bytes[path] + copy.size_bytes[path]);
            }
        }
        std::ranges::sort(extents);
        uint64_t end = 0;
        for (const auto& extent : extents) {
            if (extent.first % page_bytes != 0) return "an extent begins inside a page";
            if (extent.first < end) return "two extents overlap";
            end = extent.second;
        }
        if (end > placement.path_bytes[path]) return "an extent leaves its data file";
        if (placement.durable_bytes[path] > placement.path_bytes[path]) {
            return "the durable bytes are more than all";
        }
    }
    return nullptr;
}

}  // namespace headrace::nvme
