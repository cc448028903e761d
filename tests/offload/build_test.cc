// Goal: every schedule of every small workload is right. Method: all shapes up to three layers, two
// parts, three micro-batches, all groups, windows and placements; find_fault must stay silent.
#include "offload/build.h"

#include <gtest/gtest.h>

#include "offload/find_fault.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

// All ways to place hi, opt, stash, acc and activations.
std::vector<std::pair<PartHomes, Tier>> all_placements() {
    std::vector<std::pair<PartHomes, Tier>> placements;
    for (const Tier hi : all_tiers) {
        for (const Tier opt : all_tiers) {
            for (const Tier stash : all_tiers) {
                for (const Tier acc : all_tiers) {
                    for (const Tier act : all_tiers) {
                        placements.push_back({{hi, opt, stash, acc}, act});
                    }
                }
            }
        }
    }
    return placements;
}

void expect_faultless(const Workload& workload, const Plan& plan, const std::string& what) {
    const Result<Schedule> schedule = build(workload, plan);
    ASSERT_TRUE(schedule.ok()) << schedule.error().text();
    const Fault fault = find_fault(*schedule);
    ASSERT_FALSE(fault.has_value()) << what << ": " << *fault;
}

TEST(Build, EverySmallScheduleIsFaultless) {
    size_t schedule_count = 0;
    for (const uint32_t blocks : {1u, 2u}) {
        for (const uint32_t parts : {1u, 2u}) {
            for (const bool tied : {false, true}) {
                for (const uint32_t m : {1u, 2u, 3u}) {
                    const Workload workload = small_workload({blocks, parts, tied, m});
                    for (uint32_t group = 1; group <= m; ++group) {
                        for (const uint32_t window : {1u, 2u, 3u}) {
                            for (const auto& [homes, act] : all_placements()) {
                                Plan plan = uniform_plan(workload, homes, act);
                                plan.group = group;
                                plan.window = window;
                                ++schedule_count;
                                expect_faultless(workload, plan, "uniform");
                                if (HasFatalFailure()) return;
                            }
                        }
                    }
                }
            }
        }
    }
    EXPECT_EQ(schedule_count, 2u * 2 * 2 * 6 * 3 * 243);
}

}  // namespace
}  // namespace headrace::offload
