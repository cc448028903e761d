#include "offload/zero.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::offload {

namespace {

bool is_on_card(const ShardedStates& states) {
    return states.weights == Tier::gpu && states.gradients == Tier::gpu &&
           states.states == Tier::gpu;
}

// What all on the card must leave of it before it is called better: activations come on top.
constexpr double card_share_max = 0.8;

bool fits(const ShardedStates& states, const TierBytes& ceilings) {
    return shortfall(bytes_of_node(states), ceilings) == 0;
}

ShardedStates on_card(ShardedStates states, int stage) {
    states.weights = states.gradients = states.states = Tier::gpu;
    states.stage = stage;
    return states;
}

// What moves less than `states` and fits.
std::optional<ShardedStates> lighter(const ShardedStates& states, const TierBytes& ceilings) {
    for (const int stage : {2, 3}) {
        const bool moves_less = !is_on_card(states) || (states.stage > stage);
        const ShardedStates other = on_card(states, stage);
        const double room_bytes = card_share_max * static_cast<double>(ceilings.gpu_bytes);
        const bool has_room = static_cast<double>(bytes_of_node(other).gpu_bytes) <= room_bytes;
        if (moves_less && has_room) return other;
    }
    return std::nullopt;
}

}  // namespace

TierBytes bytes_of_node(const ShardedStates& states) {
    CHECK_GT(states.parameter_count, 0.0);
    CHECK_GE(states.stage, 0);
    CHECK_LE(states.stage, 3);
    CHECK_GE(states.ranks_per_node, 1u);
    CHECK_LE(states.ranks_per_node, states.rank_count);
    CHECK(states.weights == Tier::gpu || states.stage == 3);
    std::array<double, all_tiers.size()> rank_bytes = {};
    const auto add = [&](Tier tier, double parameter_bytes, int sharded_from_stage) {
        const double shards = states.stage >= sharded_from_stage ? states.rank_count : 1;
        rank_bytes[static_cast<size_t>(tier)] += states.parameter_count * parameter_bytes / shards;
    };
    add(states.states, states.states_bytes, 1);
    add(states.gradients, states.gradient_bytes, 2);
    add(states.weights, states.weight_bytes, 3);
    const double ranks = states.ranks_per_node;
    const auto whole = [](double bytes) { return static_cast<uint64_t>(std::ceil(bytes)); };
    return {.gpu_bytes = whole(rank_bytes[static_cast<size_t>(Tier::gpu)]),
            .ram_bytes = whole(ranks * rank_bytes[static_cast<size_t>(Tier::ram)]),
            .nvme_bytes = whole(ranks * rank_bytes[static_cast<size_t>(Tier::nvme)])};
}

std::optional<ShardedStates> nearest_that_fits(const ShardedStates& states,
                                               const TierBytes& ceilings) {
    if (fits(states, ceilings)) return states;
    for (const Tier tier : {Tier::ram, Tier::nvme}) {
        ShardedStates other = states;
        other.states = tier;
        if (fits(other, ceilings)) return other;
        other.gradients = tier;
        if (fits(other, ceilings)) return other;
        other.weights = tier;
        other.stage = 3;
        if (fits(other, ceilings)) return other;
    }
    return std::nullopt;
}

Judgement judge(const ShardedStates& states, const TierBytes& ceilings) {
    Judgement judgement{.needs = bytes_of_node(states), .better = {}, .better_needs = {}};
    if (!fits(states, ceilings)) {
        judgement.fit = Fit::does_not_fit;
        judgement.better = nearest_that_fits(states, ceilings);
    } else if (const auto other = lighter(states, ceilings)) {
        judgement.fit = Fit::needlessly_slow;
        judgement.better = other;
    }
    if (judgement.better) judgement.better_needs = bytes_of_node(*judgement.better);
    return judgement;
}

std::string describe(const ShardedStates& states) {
    const TierBytes needs = bytes_of_node(states);
    std::string text = states.rank_count == 1 ? "one card" : fmt::format("stage {}", states.stage);
    for (const auto& [tier, name] : {std::pair{states.states, "states"},
                                     {states.gradients, "gradients"},
                                     {states.weights, "weights"}}) {
        if (tier != Tier::gpu) text += fmt::format(", {} on {}", name, name_of(tier));
    }
    text += fmt::format(": {} a card", format_bytes(needs.gpu_bytes));
    if (needs.ram_bytes > 0) {
        text += fmt::format(", {} of ram a node", format_bytes(needs.ram_bytes));
    }
    if (needs.nvme_bytes > 0) {
        text += fmt::format(", {} on the drives of a node", format_bytes(needs.nvme_bytes));
    }
    return text;
}

}  // namespace headrace::offload
