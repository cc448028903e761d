// Goal: shares of parts are what was asked for, and what is wanted first is the nearest.
// Method: every share in eighths over rows of several lengths; the homes of a plan.
#include "offload/spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "offload/choice.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

double count_of(const std::vector<Tier>& tiers, Tier tier, size_t first, size_t end) {
    return static_cast<double>(std::count(tiers.begin() + static_cast<std::ptrdiff_t>(first),
                                          tiers.begin() + static_cast<std::ptrdiff_t>(end), tier));
}

TEST(Spread, TheFirstItemsAreTheNearestAndTheOthersAreEven) {
    for (int gpu = 0; gpu <= 8; ++gpu) {
        for (int ram = 0; gpu + ram <= 8; ++ram) {
            const TierShares shares{.share_of_tier = {gpu / 8.0, ram / 8.0, (8 - gpu - ram) / 8.0}};
            for (const uint32_t item_count : {1u, 5u, 16u, 75u}) {
                for (const uint32_t first_count : {1u, 4u, 14u}) {
                    if (first_count > item_count) continue;
                    const std::vector<Tier> tiers =
                        first_items_nearest(shares, item_count, first_count);
                    const std::vector<Tier> nearest = nearest_first(shares, item_count);
                    ASSERT_EQ(tiers.size(), item_count);
                    EXPECT_TRUE(std::is_sorted(tiers.begin(), tiers.begin() + first_count));
                    for (const Tier tier : all_tiers) {
                        const double count = count_of(tiers, tier, 0, item_count);
                        EXPECT_EQ(count, count_of(nearest, tier, 0, item_count));
                        EXPECT_TRUE(shares.share(tier) > 0 || count == 0);
                        const double rest = count_of(tiers, tier, first_count, item_count) /
                                            std::max(1u, item_count - first_count);
                        for (size_t end = first_count; end <= item_count; ++end) {
                            EXPECT_NEAR(count_of(tiers, tier, first_count, end),
                                        rest * static_cast<double>(end - first_count), 2);
                        }
                    }
                }
            }
        }
    }
}

// With the verdict the first layer's update is waited for, and no other: what share there is of ram
// begins with it, fixed by a run or chosen.
TEST(Spread, TheFirstLayerIsTheNearest) {
    const Workload workload = small_workload({.block_count = 6, .parts_per_layer = 4});
    const size_t part_count = workload.layout.parts.size();
    const TierShares shares{.share_of_tier = {0, 0.25, 0.75}};
    Fixed fixed;
    const CommitRule commits;
    const Choice cached{.hi = Tier::nvme, .opt = Tier::nvme, .cached_share = 0.25};
    const Plan chosen = plan_of({workload, fixed, commits, 1}, cached);
    fixed.parameters = fixed.optimizer = shares;
    const Plan asked = plan_of({workload, fixed, commits, 1}, {});
    for (const Plan& plan : {chosen, asked}) {
        size_t in_ram = 0;
        for (size_t part = 0; part < part_count; ++part) {
            const PartHomes& homes = plan.homes[part];
            EXPECT_EQ(homes.hi, homes.opt);
            EXPECT_TRUE(part >= 4 || homes.hi == Tier::ram) << part;
            if (homes.hi == Tier::ram) ++in_ram;
        }
        EXPECT_EQ(in_ram, static_cast<size_t>(std::lround(0.25 * static_cast<double>(part_count))));
    }
    EXPECT_EQ(chosen.homes, asked.homes) << "what is chosen can be written into a run file";
}

// The update reads states in ram: there they are nearest, not on the gpu. A tied embedding is the
// first layer as any other is.
TEST(Spread, StatesOfTheFirstLayerAreInRamBeforeTheGpu) {
    const Workload workload =
        small_workload({.block_count = 6, .parts_per_layer = 4, .tied = true});
    const TierShares shares{.share_of_tier = {0.25, 0.25, 0.5}};
    Fixed fixed;
    fixed.parameters = fixed.optimizer = shares;
    const Plan plan = plan_of({workload, fixed, {}, 1}, {});
    const uint32_t first = workload.layout.layers.front().part_count;
    std::array<size_t, 3> counts = {};
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        if (part < first) {
            EXPECT_EQ(plan.homes[part].opt, Tier::ram) << part;
            EXPECT_EQ(plan.homes[part].hi, Tier::gpu) << "weights are wanted on the gpu";
        }
        ++counts[static_cast<size_t>(plan.homes[part].opt)];
    }
    for (const Tier tier : all_tiers) {
        EXPECT_NEAR(static_cast<double>(counts[static_cast<size_t>(tier)]),
                    shares.share(tier) * static_cast<double>(plan.homes.size()), 1);
    }
}

}  // namespace
}  // namespace headrace::offload
