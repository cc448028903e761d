// ZeRO's arithmetic: what the states of a model take on each of N ranks, by stage and by where they
// lie. Bytes only, nothing of time, and nothing of activations, which come on top. A rank is one
// card; the ranks of a node share its ram and its drives.
//
// With P parameters of w bytes of weight, g of gradient and s of optimizer states, each rank holds
//
//   stage 0 (every rank holds everything)     P (w + g + s)
//   stage 1 (states are sharded)              P (w + g + s/N)
//   stage 2 (gradients too)                   P (w + (g + s)/N)
//   stage 3 (weights too)                     P (w + g + s)/N
//
// on whichever tier each of the three lies. Example: 7e9 parameters in fp16 (2 + 2 + 12), N = 4,
// stage 2, all on the card: 7e9 (2 + 14/4) = 38.5 GB.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "offload/planner.h"
#include "offload/tier.h"

namespace headrace::offload {

struct ShardedStates {
    double parameter_count = 0;
    uint32_t rank_count = 1;
    uint32_t ranks_per_node = 1;  // at most rank_count
    int stage = 3;                // 0 to 3
    double weight_bytes = 2;      // per parameter, as the next two
    double gradient_bytes = 2;
    double states_bytes = 12;
    Tier weights = Tier::gpu;  // stage 3 alone may have them elsewhere
    Tier gradients = Tier::gpu;
    Tier states = Tier::gpu;
    bool operator==(const ShardedStates&) const = default;
};

// The gpu's bytes are of one card, those of ram and nvme of one node. Rounded up.
TierBytes bytes_of_node(const ShardedStates& states);

// Like `states`, with the least that must leave the card to fit: at the same stage states, then
// gradients too; then weights too, which needs stage 3; to ram first, then to nvme. Absent: not
// even then.
std::optional<ShardedStates> nearest_that_fits(const ShardedStates& states,
                                               const TierBytes& ceilings);

enum class Fit : uint8_t {
    fits,
    does_not_fit,
    // It fits, and so would what moves less: all on the card at stage 2, whose traffic between
    // ranks is that of stage 0, or else at stage 3, with a fifth of the card left for activations.
    needlessly_slow,
};

struct Judgement {
    Fit fit = Fit::fits;
    TierBytes needs;                      // of what was asked
    std::optional<ShardedStates> better;  // that fits, or that moves less; absent: none
    TierBytes better_needs;
};
Judgement judge(const ShardedStates& states, const TierBytes& ceilings);

// "stage 2, states on ram: 17.5 GB a card, 84 GB of ram a node": a line for people.
std::string describe(const ShardedStates& states);

}  // namespace headrace::offload
