// Goal: built schedules do the right thing under every timing, by a judge that knows nothing of how
// they were made; and the judge itself is right. Method: the interleaver runs every small shape and
// placement; its reduction is compared with the search that leaves nothing out, on lists short
// enough for that, whole and with each edge removed.
#include <gtest/gtest.h>

#include "offload/build.h"
#include "offload/find_fault.h"
#include "tests/offload/interleaver.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

struct Case {
    Workload workload;
    Plan plan;
    Schedule schedule{};
    SlotTable table{};
};

Case make_case(const SmallShape& shape, const PartHomes& homes, Tier act,
               Purpose purpose = Purpose::train, uint32_t path_count = 0) {
    Case made{.workload = small_workload(shape), .plan = {}};
    made.workload.purpose = purpose;
    made.plan = uniform_plan(made.workload, homes, act);
    made.plan.path_count = path_count;
    made.plan.rings.ram_hi = 1;
    made.plan.window = 1;
    made.schedule = *build(made.workload, made.plan);
    made.table = lay_slots(made.workload, made.plan);
    return made;
}

Schedule without_edge(const Schedule& schedule, size_t edge) {
    Schedule without = schedule;
    without.edges.erase(without.edges.begin() + static_cast<std::ptrdiff_t>(edge));
    return without;
}

TEST(Oracle, BuiltSchedulesAreRightUnderEveryTiming) {
    size_t schedule_count = 0;
    for (const bool tied : {false, true}) {
        for (const uint32_t blocks : {0u, 1u}) {
            for (const auto& [m, group] : {std::pair(1u, 1u), {2u, 1u}, {2u, 2u}}) {
                for (uint32_t placement = 0; placement < 27; placement += 2) {
                    const PartHomes homes{all_tiers[placement % 3], all_tiers[placement / 3 % 3],
                                          all_tiers[placement / 9], all_tiers[placement % 2 + 1]};
                    Case made{.workload = small_workload({blocks, 1, tied, m}), .plan = {}};
                    made.plan = uniform_plan(made.workload, homes, homes.acc);
                    made.plan.group = group;
                    made.plan.path_count = placement % 3;
                    const Schedule schedule = *build(made.workload, made.plan);
                    const Finding finding =
                        interleave(schedule, lay_slots(made.workload, made.plan), {});
                    ASSERT_TRUE(finding.is_complete);
                    ASSERT_FALSE(finding.violation.has_value()) << *finding.violation;
                    ++schedule_count;
                }
            }
        }
    }
    EXPECT_EQ(schedule_count, 2u * 2 * 3 * 14);
}

TEST(Oracle, SchedulesThatKeepAreRightUnderEveryTiming) {
    size_t schedule_count = 0;
    for (const uint32_t blocks : {1u, 2u}) {
        for (const auto& [m, group] : {std::pair(1u, 1u), {2u, 1u}, {2u, 2u}}) {
            for (const uint32_t slots : {1u, 2u}) {
                for (const Tier kept : all_tiers) {
                    Case made{.workload = small_workload({blocks, 1, false, m}), .plan = {}};
                    const Tier other = all_tiers[(static_cast<size_t>(kept) + slots) % 3];
                    made.plan = uniform_plan(made.workload, {other, other, other, other}, other);
                    made.plan.group = group;
                    made.plan.rings.gpu_kept = made.plan.rings.ram_kept = slots;
                    keep_blocks(made.workload, kept, made.plan);
                    if (blocks == 2 && slots == 1) made.plan.kept_homes[1] = std::nullopt;
                    const Schedule schedule = *build(made.workload, made.plan);
                    if (schedule.ops.size() > interleaver_op_count_max) continue;
                    const Finding finding =
                        interleave(schedule, lay_slots(made.workload, made.plan), {});
                    ASSERT_TRUE(finding.is_complete);
                    ASSERT_FALSE(finding.violation.has_value()) << *finding.violation;
                    ++schedule_count;
                }
            }
        }
    }
    EXPECT_GE(schedule_count, 30u);
}

TEST(Oracle, ReductionFindsWhatTheFullSearchFinds) {
    constexpr PartHomes on_nvme{Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme};
    constexpr PartHomes on_ram{Tier::ram, Tier::ram, Tier::ram, Tier::ram};
    const std::vector<Case> cases = {
        make_case({0, 1, false, 1}, on_nvme, Tier::ram, Purpose::evaluate),
        make_case({0, 1, true, 2}, on_ram, Tier::ram, Purpose::evaluate),
        make_case({0, 1, true, 1}, on_ram, Tier::ram),
    };
    size_t right_count = 0;
    size_t wrong_count = 0;
    for (const Case& made : cases) {
        for (size_t edge = 0; edge <= made.schedule.edges.size(); ++edge) {
            const bool is_whole = edge == made.schedule.edges.size();
            const Schedule schedule = is_whole ? made.schedule : without_edge(made.schedule, edge);
            const InterleaverOptions reduced{.lane_order = LaneOrder::in_list};
            const InterleaverOptions full{.lane_order = LaneOrder::in_list,
                                          .reduction = Reduction::none};
            const Finding by_few = interleave(schedule, made.table, reduced);
            const Finding by_all = interleave(schedule, made.table, full);
            ASSERT_TRUE(by_all.is_complete);
            ASSERT_EQ(by_few.violation.has_value(), by_all.violation.has_value()) << edge;
            ++(by_all.violation ? wrong_count : right_count);
        }
    }
    EXPECT_GT(right_count, 0u);
    EXPECT_GT(wrong_count, 0u);
}

}  // namespace
}  // namespace headrace::offload
