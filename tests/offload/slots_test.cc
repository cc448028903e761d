// Goal: peak bytes are a sum, and every list of a plan shares its slots. Method: the sums are added
// up by hand from the slot list and from the plan; lists of fewer micro-batches and of evaluation
// are compared slot by slot; each refusal of a plan is provoked.
#include "offload/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/build.h"
#include "offload/find_fault.h"
#include "offload/sizes.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

using testing::IsEmpty;
using testing::SizeIs;
using testing::StrEq;

constexpr PartHomes on_gpu{Tier::gpu, Tier::gpu, Tier::gpu, Tier::gpu};
constexpr PartHomes on_ram{Tier::ram, Tier::ram, Tier::ram, Tier::ram};
constexpr PartHomes on_nvme{Tier::nvme, Tier::nvme, Tier::nvme, Tier::nvme};

std::vector<std::pair<PartHomes, Tier>> some_placements() {
    return {{on_gpu, Tier::gpu},
            {on_ram, Tier::ram},
            {on_nvme, Tier::nvme},
            {{Tier::nvme, Tier::ram, Tier::gpu, Tier::nvme}, Tier::ram},
            {{Tier::ram, Tier::nvme, Tier::ram, Tier::gpu}, Tier::nvme}};
}

TEST(Slots, TierBytesAreTheSumOfTheSlots) {
    for (const auto& [homes, act] : some_placements()) {
        for (const uint32_t path_count : {0u, 2u}) {
            const Workload workload = small_workload({2, 2, true, 3});
            Plan plan = uniform_plan(workload, homes, act);
            plan.path_count = path_count;
            keep_blocks(workload, act, plan);
            const Schedule schedule = *build(workload, plan);
            std::array<uint64_t, 3> sums = {workload.workspace_bytes, 0, 0};
            for (const Slot& slot : schedule.slots) {
                EXPECT_EQ(slot.size_bytes % page_bytes, 0u);
                sums[static_cast<size_t>(slot.tier)] += slot.size_bytes * count_of(slot.copies);
            }
            for (const Tier tier : all_tiers) {
                EXPECT_EQ(tier_bytes(schedule, tier), sums[static_cast<size_t>(tier)]);
            }
            EXPECT_FALSE(find_overlap(schedule).has_value());
        }
    }
}

// bf16, one pass, untied: per parameter hi 2, opt 10, stash 2 bytes; nothing else on the drive.
TEST(Slots, ADriveHoldsTwoGenerationsOfStatesAndOneOfTheRest) {
    const Workload workload = small_workload({1, 1, false, 1});
    Plan plan = uniform_plan(workload, on_nvme, Tier::gpu);
    uint64_t element_count = 0;
    for (const Part& part : workload.layout.parts) element_count += part.element_count;
    EXPECT_EQ(tier_bytes(*build(workload, plan), Tier::nvme), element_count * (2 + 10 + 2));
    plan.path_count = 1;
    EXPECT_EQ(tier_bytes(*build(workload, plan), Tier::nvme), element_count * (2 * 12 + 2));
}

// What a run commits must be found by a run under any other placement: the same places under the
// same numbers, and nothing else of two copies.
TEST(Slots, DurablePlacesAreTheSameUnderEveryPlacement) {
    const Workload workload = small_workload({2, 2, true, 3});
    const auto part_count = static_cast<uint32_t>(workload.layout.parts.size());
    for (const auto& [homes, act] : some_placements()) {
        for (const CommitAt commit_at : {CommitAt::every_step, CommitAt::saves}) {
            Plan plan = uniform_plan(workload, homes, act);
            plan.path_count = 1;
            plan.commit_at = commit_at;
            const Schedule schedule = *build(workload, plan);
            std::vector<uint64_t> size_of_place(size_t{part_count} * 2, 0);
            for (const Slot& slot : schedule.slots) {
                EXPECT_EQ(
                    is_durable(slot.copies),
                    slot.tier == Tier::nvme && (slot.kind == Kind::hi || slot.kind == Kind::opt));
                if (!is_durable(slot.copies)) continue;
                ASSERT_LT(slot.offset_bytes, size_of_place.size());
                EXPECT_EQ(slot.offset_bytes, slot.of + (slot.kind == Kind::opt ? part_count : 0));
                size_of_place[slot.offset_bytes] = slot.size_bytes;
            }
            for (uint32_t part = 0; part < part_count; ++part) {
                EXPECT_EQ(size_of_place[part], bytes_of_value(workload, {Kind::hi, part}));
                EXPECT_EQ(size_of_place[part + part_count],
                          bytes_of_value(workload, {Kind::opt, part}));
            }
            const bool commits = schedule.path_count > 0;
            EXPECT_EQ(commits, commit_at == CommitAt::every_step);
            for (const Op& op : schedule.ops) EXPECT_TRUE(commits || op.kind != OpKind::sync);
        }
    }
}

TEST(Slots, ShorterListsAndEvaluationShareTheSlots) {
    for (const auto& [homes, act] : some_placements()) {
        for (const uint32_t group : {1u, 2u, 3u, 5u}) {
            for (const bool tied : {false, true}) {
                Workload workload = small_workload({1, 2, tied, 3});
                Plan plan = uniform_plan(workload, homes, act);
                keep_blocks(workload, act, plan);
                plan.group = group;
                plan.path_count = group % 2;
                const Schedule full = *build(workload, plan);
                for (uint32_t m = 1; m <= 3; ++m) {
                    for (const Purpose purpose : {Purpose::train, Purpose::evaluate}) {
                        workload.micro_batch_count = m;
                        workload.purpose = purpose;
                        const Schedule list = *build(workload, plan);
                        EXPECT_EQ(list.slots, full.slots);
                        EXPECT_EQ(list.workspace_offset_bytes, full.workspace_offset_bytes);
                        const Fault fault = find_fault(list);
                        EXPECT_FALSE(fault.has_value()) << *fault;
                    }
                }
            }
        }
    }
}

TEST(Slots, PartsOfALayerLieSideBySide) {
    const Workload workload = small_workload({1, 3, true, 2});
    const SlotTable table = lay_slots(workload, uniform_plan(workload, on_gpu, Tier::gpu));
    for (uint32_t part = 1; part < workload.layout.parts.size(); ++part) {
        if (workload.layout.parts[part].layer != workload.layout.parts[part - 1].layer) continue;
        const Slot& below = table.slots[table.hi[part - 1]];
        EXPECT_EQ(table.slots[table.hi[part]].offset_bytes, below.offset_bytes + below.size_bytes);
    }
}

TEST(Slots, RingsExistOnlyWhereValuesPass) {
    const Workload workload = small_workload({1, 1, false, 1});
    const SlotTable on_card = lay_slots(workload, uniform_plan(workload, on_gpu, Tier::gpu));
    EXPECT_THAT(on_card.gpu_hi, IsEmpty());
    EXPECT_THAT(on_card.gpu_stash, IsEmpty());
    EXPECT_THAT(on_card.ram_act, IsEmpty());
    const SlotTable in_ram = lay_slots(workload, uniform_plan(workload, on_ram, Tier::ram));
    EXPECT_THAT(in_ram.ram_hi, IsEmpty());
    EXPECT_THAT(in_ram.ram_opt, IsEmpty());
    EXPECT_THAT(in_ram.gpu_hi, SizeIs(3));  // two layers in flight; the head has two parts
    EXPECT_THAT(in_ram.gpu_seam, IsEmpty());
}

// A layer that keeps has a home per micro-batch of a pass; only homes off the gpu need rings.
TEST(Slots, WhatIsKeptHasAHomePerMicroBatchOfAPass) {
    const Workload workload = small_workload({3, 1, false, 4});
    Plan plan = uniform_plan(workload, on_gpu, Tier::gpu);
    plan.group = 3;
    const Schedule none = *build(workload, plan);
    plan.kept_homes = {std::nullopt, Tier::ram, std::nullopt, Tier::gpu, std::nullopt};
    const Schedule some = *build(workload, plan);
    const SlotTable table = lay_slots(workload, plan);
    EXPECT_THAT(table.kept[1], SizeIs(3));
    EXPECT_THAT(table.kept[2], IsEmpty());
    EXPECT_THAT(table.gpu_kept, SizeIs(plan.rings.gpu_kept));
    EXPECT_THAT(table.ram_kept, IsEmpty());
    EXPECT_EQ(layers_that_keep(some), (std::vector<bool>{false, true, false, true, false}));
    EXPECT_EQ(layers_that_keep(none), std::vector<bool>(5, false));
    EXPECT_EQ(tier_bytes(some, Tier::gpu),
              tier_bytes(none, Tier::gpu) + (3 + plan.rings.gpu_kept) * workload.kept_bytes);
    EXPECT_EQ(tier_bytes(some, Tier::ram), tier_bytes(none, Tier::ram) + 3 * workload.kept_bytes);
    plan.kept_homes[1] = std::nullopt;
    EXPECT_THAT(lay_slots(workload, plan).gpu_kept, IsEmpty());
    keep_blocks(workload, Tier::nvme, plan);
    EXPECT_THAT(lay_slots(workload, plan).ram_kept, SizeIs(plan.rings.ram_kept));
}

// Gradients leave by a ring of their own where an update may be computed under backward, whether it
// is or not: the sums of a plan do not depend on the share.
TEST(Slots, GradientsLeaveByARingOfTheirOwnWhereUpdatesFetchOthers) {
    const Workload workload = small_workload({3, 1, false, 2});
    Plan plan = uniform_plan(workload, on_nvme, Tier::ram);
    EXPECT_THAT(lay_slots(workload, plan).ram_stash_out, SizeIs(plan.rings.ram_stash_out));
    const TierBytes gated = bytes_needed(workload, plan);
    plan.twice = spread_twice(workload, plan.homes, 0.5);
    EXPECT_EQ(bytes_needed(workload, plan), gated);
    for (PartHomes& homes : plan.homes) homes.stash = Tier::ram;
    EXPECT_THAT(lay_slots(workload, plan).ram_stash_out, IsEmpty());
    plan = uniform_plan(workload, {Tier::ram, Tier::nvme, Tier::nvme, Tier::ram}, Tier::ram);
    EXPECT_THAT(lay_slots(workload, plan).ram_stash_out, IsEmpty());
}

TEST(Slots, AccumulatorsNeedHomesBetweenPassesAndBetweenUses) {
    const Workload tied = small_workload({1, 1, true, 2});
    Plan plan = uniform_plan(tied, on_ram, Tier::ram);
    plan.group = 2;
    EXPECT_FALSE(needs_acc_home(tied, plan, 0, 0));
    EXPECT_TRUE(needs_acc_home(tied, plan, 0, 1));
    EXPECT_FALSE(needs_acc_home(tied, plan, 1, 0));
    EXPECT_FALSE(needs_acc_home(tied, plan, 1, 1));
    plan.group = 1;
    EXPECT_TRUE(needs_acc_home(tied, plan, 0, 0));
    EXPECT_TRUE(needs_acc_home(tied, plan, 1, 0));
    EXPECT_FALSE(needs_acc_home(tied, plan, 1, 1));
}

TEST(Slots, ARunIsLikeItselfOnceEveryCopyOfAPlaceWasWritten) {
    const Workload workload = small_workload({1, 1, false, 1});
    const auto warm_up = [&](const PartHomes& homes, uint32_t path_count, CommitAt commit_at,
                             Copies copies) {
        Plan plan = uniform_plan(workload, homes, Tier::gpu);
        plan.path_count = path_count;
        plan.commit_at = commit_at;
        plan.durable_copies = copies;
        return warm_up_step_count(plan);
    };
    EXPECT_EQ(warm_up(on_ram, 0, CommitAt::every_step, Copies::two), 1);
    EXPECT_EQ(warm_up(on_ram, 1, CommitAt::saves, Copies::two), 1) << "no step writes";
    EXPECT_EQ(warm_up(on_ram, 1, CommitAt::every_step, Copies::two), 3) << "mirrors";
    EXPECT_EQ(warm_up(on_nvme, 0, CommitAt::every_step, Copies::two), 2) << "scratch";
    EXPECT_EQ(warm_up(on_nvme, 1, CommitAt::saves, Copies::one), 2);
    EXPECT_EQ(warm_up(on_nvme, 1, CommitAt::every_step, Copies::two), warm_up_step_count_max);
}

TEST(Slots, EveryRefusalOfAPlanIsNamed) {
    const Workload good = small_workload({1, 2, false, 2});
    const auto fault_after = [&](auto change) {
        Workload workload = good;
        Plan plan = uniform_plan(workload, on_ram, Tier::ram);
        change(workload, plan);
        const char* fault = find_fault(workload, plan);
        EXPECT_EQ(fault == nullptr, build(workload, plan).ok());
        return std::string(fault == nullptr ? "none" : fault);
    };
    EXPECT_EQ(fault_after([](Workload&, Plan&) {}), "none");
    EXPECT_THAT(fault_after([](Workload& w, Plan&) {
                    w.layout = *make_layout({{"only", {{.name = "w", .shape = {9}}}, {}}}, 2048);
                }),
                StrEq("a model needs an embedding and a head"));
    EXPECT_THAT(fault_after([](Workload& w, Plan&) { w.micro_batch_count = 0; }),
                StrEq("no micro-batch"));
    EXPECT_THAT(fault_after([](Workload& w, Plan&) { w.micro_batch_count = 3; }),
                StrEq("more micro-batches than slots are laid out for"));
    EXPECT_THAT(fault_after([](Workload& w, Plan&) { w.act_bytes = 100; }),
                StrEq("act_bytes is not a multiple of a page"));
    EXPECT_THAT(fault_after([](Workload&, Plan& p) { p.group = 0; }),
                StrEq("micro_batches_per_pass is 0"));
    EXPECT_THAT(fault_after([](Workload&, Plan& p) { p.window = 0; }),
                StrEq("layers_in_flight is 0"));
    EXPECT_THAT(fault_after([](Workload&, Plan& p) { p.homes.pop_back(); }),
                StrEq("homes are not one per part"));
    EXPECT_THAT(fault_after([](Workload&, Plan& p) { p.act_homes.pop_back(); }),
                StrEq("act_homes are not one per boundary"));
    EXPECT_THAT(fault_after([](Workload&, Plan& p) { p.homes[0].hi = Tier::gpu; }),
                StrEq("a layer's weights must be on the gpu as a whole or not at all"));
    EXPECT_THAT(fault_after([](Workload&, Plan& p) { p.homes[0].acc = Tier::gpu; }),
                StrEq("a layer's accumulators must be on the gpu as a whole or not at all"));
    EXPECT_THAT(fault_after([](Workload& w, Plan&) { w.kept_bytes = 100; }),
                StrEq("kept_bytes is not a multiple of a page"));
    EXPECT_THAT(fault_after([](Workload&, Plan& p) { p.kept_homes = {Tier::gpu}; }),
                StrEq("kept_homes are not one per layer"));
    for (const size_t layer : {0u, 2u}) {
        EXPECT_THAT(fault_after([layer](Workload&, Plan& p) {
                        p.kept_homes.resize(3);
                        p.kept_homes[layer] = Tier::ram;
                    }),
                    StrEq("the first layer and the last have nothing to keep"));
    }
    EXPECT_THAT(fault_after([](Workload& w, Plan& p) {
                    w.kept_bytes = 0;
                    keep_blocks(w, Tier::gpu, p);
                }),
                StrEq("layers keep, but kept_bytes is 0"));
    for (uint32_t RingSizes::*ring :
         {&RingSizes::ram_hi, &RingSizes::ram_opt, &RingSizes::ram_stash, &RingSizes::ram_acc,
          &RingSizes::ram_act, &RingSizes::gpu_stash, &RingSizes::gpu_seam, &RingSizes::gpu_kept,
          &RingSizes::ram_kept, &RingSizes::ram_stash_out}) {
        EXPECT_THAT(fault_after([ring](Workload&, Plan& p) { p.rings.*ring = 0; }),
                    StrEq("a ring has no slot"));
    }
}

// The interleaver has no addresses, so this is all that stands between two slots.
TEST(Slots, OverlapsAreFound) {
    const Workload workload = small_workload({1, 1, false, 1});
    const Schedule good = *build(workload, uniform_plan(workload, on_nvme, Tier::ram));
    EXPECT_FALSE(find_overlap(good).has_value());
    size_t moved_count = 0;
    for (SlotId slot = 0; slot < good.slots.size(); ++slot) {
        for (SlotId other = 0; other < good.slots.size(); ++other) {
            const bool share_a_tier = good.slots[slot].tier == good.slots[other].tier;
            if (slot == other || !share_a_tier) continue;
            if (good.slots[slot].size_bytes == 0 || good.slots[other].size_bytes == 0) continue;
            Schedule moved = good;
            moved.slots[slot].offset_bytes = good.slots[other].offset_bytes;
            EXPECT_TRUE(find_overlap(moved).has_value()) << slot << " onto " << other;
            ++moved_count;
        }
    }
    EXPECT_GT(moved_count, 100u);
    Schedule moved = good;
    moved.workspace_offset_bytes -= 1;
    EXPECT_TRUE(find_overlap(moved).has_value());
}

}  // namespace
}  // namespace headrace::offload
