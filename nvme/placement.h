// Placement: where every byte of every place lies. A copy of a place is cut into blocks of
// stripe_bytes, and the blocks go round the paths in a fixed cycle of slots, the pattern, in which
// a path has as many slots as its weight. On each path the blocks of one copy lie one after
// another. FORMAT.md (striping) has a worked example. A value: pure functions of sizes and weights.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/store.h"

namespace headrace::nvme {

inline constexpr uint32_t pattern_slots_max = 256;
inline constexpr uint32_t path_count_max = 64;

// One copy of one place. offset_bytes[path]: where its first block on that path begins.
struct CopyExtent {
    uint32_t first_slot = 0;
    std::vector<uint64_t> offset_bytes;
    std::vector<uint64_t> size_bytes;  // per path
    bool operator==(const CopyExtent&) const = default;
};

struct Placement {
    uint64_t stripe_bytes = 0;
    std::vector<uint32_t> pattern;                // path of each slot
    std::vector<std::vector<CopyExtent>> copies;  // [place][copy]
    std::vector<uint64_t> path_bytes;             // what each data file holds
    std::vector<uint64_t> durable_bytes;          // the durable places' share: it comes first
    bool operator==(const Placement&) const = default;
};

// Slots in proportion to the weights, spread evenly: {3, 1} gives 0, 0, 1, 0; equal weights give
// one slot each. CHECKs: 1 to path_count_max weights, each >= 1, their sum at most
// pattern_slots_max.
std::vector<uint32_t> make_pattern(const std::vector<uint32_t>& weights);

// Lays the durable places first, then scratch, each kind in the order of the list: so the places of
// one kind lie where they lie whatever comes behind them. CHECKs: sizes and stripe positive
// multiples of page_bytes, every path in the pattern.
Placement lay_places(const std::vector<offload::PlaceSpec>& places, std::vector<uint32_t> pattern,
                     uint64_t stripe_bytes);

// The same, with the pattern of these weights.
Placement make_placement(const std::vector<offload::PlaceSpec>& places,
                         const std::vector<uint32_t>& weights, uint64_t stripe_bytes);

// Which copy of which place.
struct CopyId {
    offload::PlaceId place = 0;
    uint8_t copy = 0;
};

// Block `block` of a copy: on which path, at which offset of its data file.
struct BlockAddress {
    uint32_t path = 0;
    uint64_t offset_bytes = 0;
};
BlockAddress address_of(const Placement& placement, CopyId id, uint64_t block);

// The path alone, without the search for the offset.
inline uint32_t path_of(const Placement& placement, CopyId id, uint64_t block) {
    const uint64_t slot = placement.copies[id.place][id.copy].first_slot + block;
    return placement.pattern[slot % placement.pattern.size()];
}

// First broken invariant, or null: extents of one path must not overlap nor leave its data file.
const char* find_fault(const Placement& placement);

}  // namespace headrace::nvme
