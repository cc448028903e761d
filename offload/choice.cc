#include "offload/choice.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace headrace::offload {

namespace {

// Homes by part. Those of the first layer are the nearest: with the verdict they are wanted at
// once, and until they are there nothing computes.
std::vector<Tier> part_tiers(const Workload& workload, const TierShares& shares) {
    const Layout& layout = workload.layout;
    return first_items_nearest(shares, static_cast<uint32_t>(layout.parts.size()),
                               layout.layers.front().part_count);
}

// The same of states. An update reads and writes them in ram, so nothing is nearer; those on the
// gpu cross the link both ways.
std::vector<Tier> state_tiers(const Workload& workload, TierShares shares) {
    const auto swapped = [](Tier tier) {
        if (tier == Tier::nvme) return tier;
        return tier == Tier::ram ? Tier::gpu : Tier::ram;
    };
    std::swap(shares.share_of_tier[0], shares.share_of_tier[1]);
    std::vector<Tier> tiers = part_tiers(workload, shares);
    std::ranges::transform(tiers, tiers.begin(), swapped);
    return tiers;
}

// The same of weights, where a layer that is on the gpu is there as a whole.
std::vector<Tier> layer_tiers(const Workload& workload, const TierShares& shares) {
    const std::vector<Tier> row = first_items_nearest(shares, layer_count(workload), 1);
    std::vector<Tier> tiers;
    for (uint32_t layer = 0; layer < layer_count(workload); ++layer) {
        tiers.insert(tiers.end(), workload.layout.layers[layer].part_count, row[layer]);
    }
    return tiers;
}

void place_parts(const PlanContext& context, const Choice& choice, Plan& plan) {
    const Fixed& fixed = context.fixed;
    const Workload& workload = context.workload;
    const auto part_count = static_cast<uint32_t>(plan.homes.size());
    // A cached part is in ram, wherever the others are on nvme.
    const auto wanted = [&](Tier tier, const std::optional<TierShares>& fixed_shares) {
        if (fixed_shares) return *fixed_shares;
        TierShares shares = TierShares::all_on(tier);
        const double cached = choice.cached_share;
        if (tier == Tier::nvme) shares.share_of_tier = {0, cached, 1 - cached};
        return shares;
    };
    const TierShares parameters = wanted(choice.hi, fixed.parameters);
    const std::vector<Tier> hi = parameters.share(Tier::gpu) > 0 ? layer_tiers(workload, parameters)
                                                                 : part_tiers(workload, parameters);
    const std::vector<Tier> opt = state_tiers(workload, wanted(choice.opt, fixed.optimizer));
    std::vector<Tier> stash;
    if (fixed.stash) stash = nearest_first(*fixed.stash, part_count);
    for (uint32_t part = 0; part < part_count; ++part) {
        const Tier chosen = part < choice.ram_stash_count ? Tier::ram : choice.stash;
        plan.homes[part] = {.hi = hi[part],
                            .opt = opt[part],
                            .stash = fixed.stash ? stash[part] : chosen,
                            .acc = choice.accumulators};
    }
}

// Boundaries that hold an activation: all between two layers but the head's input.
uint32_t boundary_count(const Workload& workload) {
    return head_layer(workload) - 1;
}

void place_activations(const PlanContext& context, const Choice& choice, Plan& plan) {
    const uint32_t count = boundary_count(context.workload);
    CHECK_LE(choice.gpu_act_count + choice.ram_act_count, count);
    if (count == 0) return;
    std::vector<Tier> homes(count, choice.activations);
    std::fill_n(homes.begin(), choice.gpu_act_count, Tier::gpu);
    std::fill_n(homes.begin() + choice.gpu_act_count, choice.ram_act_count, Tier::ram);
    if (context.fixed.activations) homes = nearest_first(*context.fixed.activations, count);
    std::ranges::fill(plan.act_homes, homes.front());  // those that hold nothing are no reason
    std::ranges::reverse_copy(homes, plan.act_homes.begin() + 1);
}

void place_layers(const PlanContext& context, const Choice& choice, Plan& plan) {
    const Workload& workload = context.workload;
    place_activations(context, choice, plan);
    const KeptCounts& kept = choice.kept;
    if (kept.count() == 0) return;
    CHECK_LT(kept.count(), head_layer(workload));
    plan.kept_homes.assign(layer_count(workload), std::nullopt);
    for (uint32_t i = 0; i < kept.count(); ++i) {
        plan.kept_homes[head_layer(workload) - 1 - i] = i < kept.gpu              ? Tier::gpu
                                                        : i < kept.gpu + kept.ram ? Tier::ram
                                                                                  : Tier::nvme;
    }
}

TierShares shares_of(std::span<const uint32_t, 3> counts) {
    const double sum = counts[0] + counts[1] + counts[2];
    TierShares shares = TierShares::all_on(Tier::gpu);
    for (size_t i = 0; i < 3 && sum > 0; ++i) shares.share_of_tier[i] = counts[i] / sum;
    return shares;
}

}  // namespace

TierShares activation_shares(const Workload& workload, const Plan& plan) {
    CHECK_EQ(plan.act_homes.size(), layer_count(workload));
    std::array<uint32_t, 3> counts = {};
    for (uint32_t boundary = 1; boundary < head_layer(workload); ++boundary) {
        ++counts[static_cast<size_t>(plan.act_homes[boundary])];
    }
    return shares_of(counts);
}

TierShares stash_shares(const Plan& plan) {
    CHECK(!plan.homes.empty());
    std::array<uint32_t, 3> counts = {};
    for (const PartHomes& homes : plan.homes) ++counts[static_cast<size_t>(homes.stash)];
    return shares_of(counts);
}

Plan plan_of(const PlanContext& context, const Choice& choice) {
    const Workload& workload = context.workload;
    CHECK_GE(choice.group, 1u);
    CHECK_GE(choice.window, 1u);
    CHECK_GE(choice.ring_slots, 1u);
    Plan plan = uniform_plan(workload, {}, choice.activations);
    plan.group = choice.group;
    plan.window = std::min(choice.window, layer_count(workload));
    place_parts(context, choice, plan);
    place_layers(context, choice, plan);
    if (choice.twice_share > 0) {
        plan.twice = spread_twice(workload, plan.homes, choice.twice_share);
        if (!std::ranges::count(plan.twice, true)) plan.twice.clear();
    }
    const uint32_t slots = choice.ring_slots;
    plan.rings = {.ram_hi = slots,
                  .ram_opt = slots,
                  .ram_stash = slots,
                  .ram_acc = slots,
                  .ram_act = std::max(2u, slots),
                  .gpu_stash = 2,
                  .gpu_seam = 1,
                  .ram_stash_out = 2 * slots};
    const auto commit_at = uses_nvme(plan) ? context.commits.on_nvme : context.commits.in_memory;
    plan.path_count = commit_at ? context.path_count : 0;
    plan.commit_at = commit_at.value_or(CommitAt::every_step);
    plan.durable_copies = plan.commit_at == CommitAt::saves ? context.commits.copies : Copies::two;
    return plan;
}

}  // namespace headrace::offload
