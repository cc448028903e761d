#include "offload/choice.h"

#include <algorithm>

namespace headrace::offload {

namespace {

// Weights: by part, but a layer that is on the gpu is there as a whole.
void place_parameters(const Workload& workload, const TierShares& shares, Plan& plan) {
    const bool by_layer = shares.share(Tier::gpu) > 0;
    TierSpread spread(shares);
    for (const LayerLayout& layer : workload.layout.layers) {
        Tier tier = by_layer ? spread.next() : Tier::ram;
        for (uint32_t i = 0; i < layer.part_count; ++i) {
            if (!by_layer) tier = spread.next();
            plan.homes[layer.first_part + i].hi = tier;
        }
    }
}

void place_parts(const PlanContext& context, const Choice& choice, Plan& plan) {
    const Fixed& fixed = context.fixed;
    if (fixed.parameters) place_parameters(context.workload, *fixed.parameters, plan);
    TierSpread states(fixed.optimizer.value_or(TierShares::all_on(choice.opt)));
    Spread cached(choice.cached_share);
    for (PartHomes& homes : plan.homes) {
        const bool is_cached = cached.next();
        const auto home = [&](Tier tier) {
            return is_cached && tier == Tier::nvme ? Tier::ram : tier;
        };
        if (!fixed.parameters) homes.hi = home(choice.hi);
        homes.opt = states.next();
        if (!fixed.optimizer) homes.opt = home(homes.opt);
        homes.stash = choice.stash;
        homes.acc = choice.accumulators;
    }
}

void place_layers(const PlanContext& context, const Choice& choice, Plan& plan) {
    const Workload& workload = context.workload;
    if (context.fixed.activations) {
        TierSpread boundaries(*context.fixed.activations);
        for (Tier& home : plan.act_homes) home = boundaries.next();
    }
    const uint32_t kept_count = choice.kept_count();
    if (kept_count == 0) return;
    CHECK_LT(kept_count, head_layer(workload));
    plan.kept_homes.assign(layer_count(workload), std::nullopt);
    for (uint32_t i = 0; i < kept_count; ++i) {
        plan.kept_homes[head_layer(workload) - 1 - i] =
            i < choice.gpu_kept_count                           ? Tier::gpu
            : i < choice.gpu_kept_count + choice.ram_kept_count ? Tier::ram
                                                                : Tier::nvme;
    }
}

bool uses_nvme(const Plan& plan) {
    return std::ranges::any_of(plan.homes, [](const PartHomes& homes) {
        return homes.hi == Tier::nvme || homes.opt == Tier::nvme;
    });
}

}  // namespace

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
    }
    const uint32_t slots = choice.ring_slots;
    plan.rings = {.ram_hi = slots,
                  .ram_opt = slots,
                  .ram_stash = slots,
                  .ram_acc = slots,
                  .ram_act = std::max(2u, slots),
                  .gpu_stash = 2,
                  .gpu_seam = 1};
    const auto commit_at = uses_nvme(plan) ? context.commits.on_nvme : context.commits.in_memory;
    plan.path_count = commit_at ? context.path_count : 0;
    plan.commit_at = commit_at.value_or(CommitAt::every_step);
    return plan;
}

}  // namespace headrace::offload
