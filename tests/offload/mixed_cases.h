// Seeded workloads and plans with everything mixed: parts on different tiers, several micro-batches
// and passes, some updates computed twice, some layers that keep, short lists, evaluation.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "offload/slots.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {

class Dice {
  public:
    explicit Dice(uint64_t seed) : engine_(seed) {}
    uint32_t below(uint32_t end) { return static_cast<uint32_t>(engine_() % end); }
    uint32_t from(uint32_t first, uint32_t last) { return first + below(last - first + 1); }
    bool coin() { return below(2) == 1; }
    Tier tier() { return all_tiers[below(3)]; }

  private:
    std::mt19937_64 engine_;
};

// hi and acc are on the gpu by whole layers; everything else part by part.
inline std::vector<PartHomes> mixed_homes(const Workload& workload, Dice& dice) {
    std::vector<PartHomes> homes;
    for (const LayerLayout& layer : workload.layout.layers) {
        const bool hi_on_gpu = dice.below(3) == 0;
        const bool acc_on_gpu = dice.below(3) == 0;
        for (uint32_t i = 0; i < layer.part_count; ++i) {
            const Tier hi = dice.coin() ? Tier::ram : Tier::nvme;
            const Tier acc = dice.coin() ? Tier::ram : Tier::nvme;
            homes.push_back({.hi = hi_on_gpu ? Tier::gpu : hi,
                             .opt = dice.tier(),
                             .stash = dice.tier(),
                             .acc = acc_on_gpu ? Tier::gpu : acc});
        }
    }
    return homes;
}

inline std::pair<Workload, Plan> mixed_case(Dice& dice) {
    Workload workload = small_workload({.block_count = dice.below(4),
                                        .parts_per_layer = dice.from(1, 3),
                                        .tied = dice.coin(),
                                        .micro_batch_count = dice.from(1, 3)});
    workload.micro_batch_count_max = workload.micro_batch_count + dice.below(3);
    if (dice.below(4) == 0) workload.purpose = Purpose::evaluate;
    if (dice.below(4) == 0) workload.dtype = workload.gradients = Dtype::fp32;
    Plan plan;
    plan.homes = mixed_homes(workload, dice);
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        const PartHomes& homes = plan.homes[part];
        plan.twice.push_back(homes.hi == Tier::nvme && homes.opt == Tier::nvme &&
                             can_update_twice(workload, part) && dice.coin());
    }
    for (uint32_t i = 0; i < layer_count(workload); ++i) plan.act_homes.push_back(dice.tier());
    for (uint32_t i = 0; i < layer_count(workload); ++i) {
        plan.kept_homes.push_back(dice.coin() ? std::optional(dice.tier()) : std::nullopt);
    }
    plan.kept_homes.front() = plan.kept_homes.back() = std::nullopt;
    if (dice.below(4) == 0) plan.kept_homes.clear();
    plan.group = dice.from(1, 4);
    plan.window = dice.from(1, 6);
    plan.path_count = dice.below(3);
    plan.rings = {.ram_hi = dice.from(1, 3),
                  .ram_opt = dice.from(1, 3),
                  .ram_stash = dice.from(1, 3),
                  .ram_acc = dice.from(1, 3),
                  .ram_act = dice.from(1, 3),
                  .gpu_stash = dice.from(1, 3),
                  .gpu_seam = dice.from(1, 3),
                  .gpu_kept = dice.from(1, 3),
                  .ram_kept = dice.from(1, 3),
                  .ram_stash_out = dice.from(1, 3)};
    return {workload, plan};
}

}  // namespace headrace::offload
