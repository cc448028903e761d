// Fit: the first way to fill in a choice that stays inside the ceilings. Of the many ways to fill
// in what a choice and the question leave open, the best are tried first: rings shrink before
// anything moves to a farther tier, that before passes multiply.
#pragma once

#include <initializer_list>
#include <vector>

#include "offload/room.h"

namespace headrace::offload {

// How far the search goes. First only to what is near: memory, all micro-batches in one pass.
enum class Reach : uint8_t { memory, all };

// Those of the tiers, in their order, that the reach and the question's drives allow.
std::vector<Tier> usable_tiers(const Question& question, Reach reach,
                               std::initializer_list<Tier> tiers);

// What of a choice may still be tried, the best first.
struct Open {
    std::vector<uint32_t> ring_slots;
    std::vector<Tier> stashes;
};

// With the homes of `choice`; nothing: no way fits, and the misses are the room's.
// Error (usage): the question fixes what cannot be.
Result<std::optional<Choice>> fit(Room& room, Reach reach, const Choice& choice, const Open& open);

}  // namespace headrace::offload
