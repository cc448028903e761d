// Goal: the planner's answer fits, can be built, is the fastest of what it looked at, and uses what
// is near before what is far. Method: small workloads on a machine whose drive binds, with ceilings
// from roomy to impossible; seeded ceilings and rates for what must hold always.
#include "offload/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "offload/bound.h"
#include "offload/build.h"
#include "offload/find_fault.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

using testing::HasSubstr;

constexpr uint64_t roomy = gib;

// As a small card beside slow drives: what a step of blocks() moves takes as long as it computes.
Machine small_machine() {
    return {.name = "small",
            .gpu_flops = 1e12,
            .gpu_memory_bytes_per_s = 1e12,
            .launch_s = 1e-6,
            .link = {.h2d_bytes_per_s = 1e9, .d2h_bytes_per_s = 1e9},
            .drive = {.read_bytes_per_s = 20e6, .write_bytes_per_s = 10e6},
            .update_parameters_per_s = 1e9,
            .memory_bytes_per_s = 20e9,
            .core_count = 4,
            .update_cores = 2};
}

Workload blocks() {
    Workload workload = small_workload(
        {.block_count = 12, .parts_per_layer = 2, .tied = false, .micro_batch_count = 2});
    workload.kept_bytes = 2 * page_bytes;
    return workload;
}

Effort effort_of(const Workload& workload, double flop) {
    Effort effort;
    effort.layers.assign(layer_count(workload),
                         {.forward_flop = flop, .recompute_flop = flop, .backward_flop = 2 * flop});
    return effort;
}

// Peak bytes of everything on one tier, as a measure for ceilings.
TierBytes all_on(const Workload& workload, Tier tier) {
    Plan plan = uniform_plan(workload, {tier, tier, Tier::ram, Tier::ram}, Tier::ram);
    plan.group = workload.micro_batch_count_max;
    plan.path_count = tier == Tier::nvme ? 1 : 0;
    return bytes_needed(workload, plan);
}

void expect_right(const Question& question, const Answer& answer) {
    std::vector<Candidate> all = answer.others;
    all.push_back(answer.best);
    for (const Candidate& candidate : all) {
        EXPECT_LE(candidate.needs.gpu_bytes, question.ceilings.gpu_bytes);
        EXPECT_LE(candidate.needs.ram_bytes, question.ceilings.ram_bytes);
        EXPECT_LE(candidate.needs.nvme_bytes, question.ceilings.nvme_bytes);
        const SlotTable slots = lay_slots(question.workload, candidate.plan);
        EXPECT_EQ(candidate.needs, bytes_needed(question.workload, slots));
        EXPECT_EQ(candidate.needs, bytes_needed(question.workload, candidate.plan));
        const double bound =
            bound_s(question.workload, candidate.plan, question.machine, question.effort);
        EXPECT_LE(bound, 1.0001 * candidate.forecast.step_s);
        EXPECT_GT(bound, 0);
        EXPECT_GE(candidate.forecast.step_s, answer.best.forecast.step_s);
        const Schedule schedule = build(question.workload, candidate.plan).value();
        const Fault fault = find_fault(schedule);
        EXPECT_FALSE(fault.has_value()) << *fault;
    }
}

TEST(Planner, WhatFitsTheCardIsNotOffloaded) {
    const Workload workload = blocks();
    const Machine machine = small_machine();
    const Effort effort = effort_of(workload, 1e9);
    const Question question{.workload = workload,
                            .machine = machine,
                            .effort = effort,
                            .ceilings = {roomy, roomy, roomy},
                            .path_count = 1};
    const Answer answer = find_plan(question).value();
    EXPECT_EQ(answer.best.base, Base::card);
    EXPECT_EQ(answer.best.needs.nvme_bytes, 0u);
    EXPECT_EQ(answer.best.choice.kept.gpu, 12u);
    expect_right(question, answer);
}

TEST(Planner, WhatFitsRamUsesNoDrive) {
    const Workload workload = blocks();
    const Machine machine = small_machine();
    const Effort effort = effort_of(workload, 1e9);
    const TierBytes in_ram = all_on(workload, Tier::ram);
    const Question question{.workload = workload,
                            .machine = machine,
                            .effort = effort,
                            .ceilings = {in_ram.gpu_bytes, roomy, roomy},
                            .path_count = 1};
    const Answer answer = find_plan(question).value();
    EXPECT_EQ(answer.best.base, Base::ram);
    EXPECT_EQ(answer.best.needs.nvme_bytes, 0u);
    EXPECT_EQ(answer.best.choice.kept.gpu, 0u) << "the gpu has no room";
    expect_right(question, answer);
}

// The drive is what binds and most of the step is backward: updates twice are worth their reads.
TEST(Planner, OnADriveItFindsWhatKeepsItBusy) {
    const Workload workload = blocks();
    const Machine machine = small_machine();
    const double drive_s = static_cast<double>(workload.layout.parts.size() * block_elements) *
                           (16 / 20e6 + 14 / 10e6);
    const Effort effort = effort_of(workload, drive_s / 12 / 8 * 1e12);
    const TierBytes on_nvme = all_on(workload, Tier::nvme);
    Question question{.workload = workload,
                      .machine = machine,
                      .effort = effort,
                      .ceilings = {on_nvme.gpu_bytes, on_nvme.ram_bytes, roomy},
                      .path_count = 1};
    const Answer tight = find_plan(question).value();
    EXPECT_EQ(tight.best.base, Base::nvme);
    EXPECT_GT(tight.best.choice.twice_share, 0);
    expect_right(question, tight);
    question.ceilings.ram_bytes += all_on(workload, Tier::ram).ram_bytes / 2;
    const Answer wide = find_plan(question).value();
    EXPECT_GT(wide.best.needs.ram_bytes, on_nvme.ram_bytes) << "what there is more of is used";
    EXPECT_LT(wide.best.forecast.step_s, tight.best.forecast.step_s);
    expect_right(question, wide);
}

// What neither the gpu nor ram has room for is kept on the drive where computing binds, and not
// where the drive does, nor where recompute is asked for.
TEST(Planner, AnIdleDriveTakesWhatBackwardNeeds) {
    const Workload workload = blocks();
    const Machine machine = small_machine();
    const double drive_s = static_cast<double>(workload.layout.parts.size() * block_elements) *
                           (16 / 20e6 + 14 / 10e6);
    TierBytes ceilings = all_on(workload, Tier::nvme);
    ceilings.gpu_bytes += 2 * workload.kept_bytes;
    ceilings.ram_bytes += 2 * workload.kept_bytes;
    ceilings.nvme_bytes = roomy;
    for (const double share_of_drive : {0.1, 10.0}) {
        const Effort effort = effort_of(workload, share_of_drive * drive_s / 12 / 8 * 1e12);
        Question question{.workload = workload,
                          .machine = machine,
                          .effort = effort,
                          .ceilings = ceilings,
                          .path_count = 1};
        const Answer answer = find_plan(question).value();
        expect_right(question, answer);
        const Choice& choice = answer.best.choice;
        EXPECT_EQ(choice.kept.nvme, share_of_drive > 1 ? 12u : 0u);
        EXPECT_LT(choice.kept.gpu, 2u) << "there is room for a ring, or for one layer";
        question.fixed.keeps = false;
        const Answer recomputing = find_plan(question).value();
        EXPECT_EQ(recomputing.best.choice.kept.count(), 0u);
        EXPECT_GE(recomputing.best.forecast.step_s, answer.best.forecast.step_s);
        // Asked for, all keep, on the drive too.
        question.fixed.keeps = true;
        EXPECT_EQ(find_plan(question).value().best.choice.kept.count(), 12u);
    }
}

// Gradients that fill ram take no room from the ring of what is kept on the drive: however much ram
// there is, the planner's own choice is as short as one that was asked to keep everything.
TEST(Planner, GradientsInRamKeepNoLayerFromKeeping) {
    const Workload workload = blocks();
    const Machine machine = small_machine();
    const double drive_s = static_cast<double>(workload.layout.parts.size() * block_elements) *
                           (16 / 20e6 + 14 / 10e6);
    const Effort effort = effort_of(workload, 10 * drive_s / 12 / 8 * 1e12);
    const TierBytes bare = all_on(workload, Tier::nvme);
    Question question{.workload = workload,
                      .machine = machine,
                      .effort = effort,
                      .ceilings = {bare.gpu_bytes + 2 * workload.kept_bytes, 0, roomy},
                      .path_count = 1};
    question.fixed.parameters = question.fixed.optimizer = TierShares::all_on(Tier::nvme);
    bool keeps_in_ram = false;
    for (uint64_t pages = 0; pages < 24; ++pages) {
        question.ceilings.ram_bytes = bare.ram_bytes + pages * page_bytes;
        question.fixed.keeps = true;
        const Result<Answer> asked = find_plan(question);
        if (!asked.ok()) continue;  // no room for the ring
        question.fixed.keeps.reset();
        const Answer own = find_plan(question).value();
        EXPECT_EQ(own.best.choice.kept.count(), 12u) << pages;
        EXPECT_LE(own.best.forecast.step_s, 1.02 * asked->best.forecast.step_s) << pages;
        const Choice& choice = own.best.choice;
        if (choice.kept.ram > 0) keeps_in_ram = true;
        if (choice.kept.ram > 0 && choice.kept.nvme > 0) {
            EXPECT_EQ(own.best.plan.homes.front().stash, Tier::ram)
                << "wanted as soon as the verdict is there; " << pages;
        }
    }
    EXPECT_TRUE(keeps_in_ram);
    EXPECT_EQ(find_plan(question).value().best.choice.kept.count(), 12u) << "there was room";
}

size_t count_on(const std::vector<Tier>& homes, Tier tier) {
    return static_cast<size_t>(std::ranges::count(homes, tier));
}

std::vector<Tier> stash_homes(const Plan& plan) {
    std::vector<Tier> homes;
    for (const PartHomes& part : plan.homes) homes.push_back(part.stash);
    return homes;
}

// From a ram that holds the rings alone to one that holds everything: what is spilled is less and
// less, never a piece more than must be, and what is wanted first is what stays.
TEST(Planner, NoMoreIsSpilledThanMustBe) {
    const Workload workload = small_workload(
        {.block_count = 12, .parts_per_layer = 2, .tied = false, .micro_batch_count = 2});
    const Machine machine = small_machine();
    const Effort effort = effort_of(workload, 1e8);
    Question question{.workload = workload,
                      .machine = machine,
                      .effort = effort,
                      .ceilings = {},
                      .path_count = 1};
    question.fixed.parameters = question.fixed.optimizer = TierShares::all_on(Tier::nvme);
    question.fixed.accumulators = Tier::nvme;
    question.fixed.window = 1;
    question.fixed.twice_share = 0;
    question.fixed.keeps = false;
    const Choice bare{.hi = Tier::nvme,
                      .opt = Tier::nvme,
                      .activations = Tier::nvme,
                      .stash = Tier::nvme,
                      .accumulators = Tier::nvme,
                      .group = 2,
                      .window = 1};
    const Plan spilled = plan_of({workload, question.fixed, question.commits, 1}, bare);
    question.ceilings = bytes_needed(workload, spilled);
    question.ceilings.nvme_bytes = roomy;
    size_t before = spilled.homes.size() + 12;
    std::set<size_t> counts;
    for (int step = 0; step < 100; ++step, question.ceilings.ram_bytes += page_bytes) {
        const Answer answer = find_plan(question).value();
        expect_right(question, answer);
        const Plan& plan = answer.best.plan;
        const std::vector<Tier> act_homes(plan.act_homes.begin() + 1, plan.act_homes.end() - 1);
        const std::vector<Tier> stashes = stash_homes(plan);
        EXPECT_TRUE(std::ranges::is_sorted(act_homes, std::greater<>()));
        EXPECT_TRUE(std::ranges::is_sorted(stashes));
        const size_t on_nvme = count_on(act_homes, Tier::nvme) + count_on(stashes, Tier::nvme);
        const uint64_t piece =
            count_on(act_homes, Tier::nvme) > 0 ? 2 * workload.act_bytes : 2 * block_elements;
        if (on_nvme > 0) {
            EXPECT_GT(answer.best.needs.ram_bytes + piece, question.ceilings.ram_bytes) << step;
        }
        if (answer.best.choice.ring_slots == 2) {
            EXPECT_LE(on_nvme, before) << step;
            before = on_nvme;
            counts.insert(on_nvme);
        }
        // As the run file would say it.
        Question settled = question;
        settled.fixed.activations = activation_shares(workload, plan);
        settled.fixed.stash = stash_shares(plan);
        settled.ceilings = {roomy, roomy, roomy};
        const Plan again = find_plan(settled).value().best.plan;
        EXPECT_EQ(std::vector(again.act_homes.begin() + 1, again.act_homes.end() - 1), act_homes);
        EXPECT_EQ(stash_homes(again), stashes);
    }
    EXPECT_EQ(before, 0u);
    EXPECT_GT(counts.size(), 12u);
}

// TUNE-1: what is fixed is as fixed in every candidate, to the byte; what is free is searched.
TEST(Planner, tune_1_WhatIsFixedStaysAndWhatIsFreeIsSearched) {
    const Workload workload = blocks();
    const Machine machine = small_machine();
    const Effort effort = effort_of(workload, 1e8);
    const Question open{.workload = workload,
                        .machine = machine,
                        .effort = effort,
                        .ceilings = {all_on(workload, Tier::nvme).gpu_bytes,
                                     all_on(workload, Tier::nvme).ram_bytes + 128 * kib, roomy},
                        .path_count = 1};
    const Answer free = find_plan(open).value();
    EXPECT_GT(free.others.size(), 2u);
    Question fixed = open;
    fixed.fixed = {.parameters = TierShares{.share_of_tier = {0, 0.25, 0.75}},
                   .optimizer = TierShares::all_on(Tier::nvme),
                   .activations = TierShares::all_on(Tier::ram),
                   .stash = TierShares::all_on(Tier::nvme),
                   .accumulators = Tier::nvme,
                   .group = 1,
                   .window = 1,
                   .twice_share = 0.25,
                   .keeps = false};
    const Answer answer = find_plan(fixed).value();
    expect_right(fixed, answer);
    std::vector<Candidate> all = answer.others;
    all.push_back(answer.best);
    for (const Candidate& candidate : all) {
        const Plan& plan = candidate.plan;
        EXPECT_EQ(plan.group, 1u);
        EXPECT_EQ(plan.window, 1u);
        EXPECT_TRUE(plan.kept_homes.empty());
        EXPECT_EQ(plan.twice, spread_twice(workload, plan.homes, 0.25));
        size_t in_ram = 0;
        for (const PartHomes& homes : plan.homes) {
            in_ram += homes.hi == Tier::ram ? 1 : 0;
            EXPECT_NE(homes.hi, Tier::gpu);
            EXPECT_EQ(homes.opt, Tier::nvme);
            EXPECT_EQ(homes.stash, Tier::nvme);
            EXPECT_EQ(homes.acc, Tier::nvme);
        }
        EXPECT_EQ(in_ram, plan.homes.size() / 4);
        for (const Tier tier : plan.act_homes) EXPECT_EQ(tier, Tier::ram);
    }
    // Every layer must keep: it does, or the job does not fit.
    fixed.fixed = {};
    fixed.fixed.keeps = true;
    fixed.ceilings = {roomy, roomy, roomy};
    EXPECT_EQ(find_plan(fixed).value().best.choice.kept.gpu, 12u);
    fixed.ceilings = all_on(workload, Tier::nvme);
    const Findings miss = search(fixed).value();
    EXPECT_FALSE(miss.answer.has_value());
    EXPECT_GT(shortfall(miss.nearest, fixed.ceilings), 0u);
}

TEST(Planner, WhatFitsNowhereIsRefusedWithItsNumbers) {
    const Workload workload = blocks();
    const Machine machine = small_machine();
    const Effort effort = effort_of(workload, 1e9);
    Question question{.workload = workload,
                      .machine = machine,
                      .effort = effort,
                      .ceilings = {16 * kib, roomy, roomy},
                      .path_count = 1};
    const auto no_card = find_plan(question);
    ASSERT_FALSE(no_card.ok());
    EXPECT_EQ(no_card.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(no_card.error().text(), HasSubstr("of 16.0 KiB (too little)"));
    question.ceilings = {roomy, 64 * kib, 0};
    question.ceilings.gpu_bytes = all_on(workload, Tier::ram).gpu_bytes;
    question.path_count = 0;
    const auto no_drive = find_plan(question);
    ASSERT_FALSE(no_drive.ok());
    EXPECT_THAT(no_drive.error().text(), HasSubstr("a drive would take"));
}

TEST(Planner, AMachineWithoutSenseIsRefused) {
    const Workload workload = blocks();
    const Effort effort = effort_of(workload, 1e9);
    Machine machine = small_machine();
    const Question question{.workload = workload,
                            .machine = machine,
                            .effort = effort,
                            .ceilings = {roomy, roomy, roomy},
                            .path_count = 1};
    machine.gpu_flops = 0;
    EXPECT_THAT(find_plan(question).error().text(), HasSubstr("gpu_flops"));
    machine = small_machine();
    machine.drive = {};
    EXPECT_THAT(find_plan(question).error().text(), HasSubstr("headrace bench nvme"));
    machine = small_machine();
    machine.gpu_flops = 1e-9;  // a step would be longer than the clock goes
    EXPECT_THAT(find_plan(question).error().text(), HasSubstr("more than a century"));
}

// Whatever is fixed on a drive, where there is none, is named before anything is weighed.
TEST(Planner, NothingIsFixedOnADriveThatIsNotThere) {
    const Workload workload = blocks();
    Machine machine = small_machine();
    machine.drive = {};
    const Effort effort = effort_of(workload, 1e9);
    static const TierShares half = {.share_of_tier = {0, 0.5, 0.5}};
    const std::pair<void (*)(Fixed&), const char*> cases[] = {
        {[](Fixed& fixed) { fixed.parameters = half; }, "weights are fixed on nvme"},
        {[](Fixed& fixed) { fixed.optimizer = half; }, "optimizer states are fixed on nvme"},
        {[](Fixed& fixed) { fixed.activations = half; }, "activations are fixed on nvme"},
        {[](Fixed& fixed) { fixed.stash = half; }, "gradients are fixed on nvme"},
        {[](Fixed& fixed) { fixed.accumulators = Tier::nvme; }, "accumulators are fixed on nvme"},
        {[](Fixed& fixed) { fixed.kept = {.nvme = 1}; }, "blocks are kept on nvme"}};
    for (const auto& [fix, words] : cases) {
        Question question{.workload = workload,
                          .machine = machine,
                          .effort = effort,
                          .ceilings = {roomy, roomy, roomy}};
        fix(question.fixed);
        const auto answer = find_plan(question);
        ASSERT_FALSE(answer.ok()) << words;
        EXPECT_EQ(answer.error().code, ErrorCode::usage);
        EXPECT_THAT(answer.error().text(), HasSubstr(words));
        EXPECT_THAT(answer.error().text(), HasSubstr("there is no drive"));
    }
}

// HEADRACE_SEED=... replays a failure or widens the sample.
TEST(Planner, EveryAnswerFitsAndIsFaultless) {
    const char* chosen = std::getenv("HEADRACE_SEED");
    const uint64_t seed = chosen == nullptr ? 1 : std::strtoull(chosen, nullptr, 10);
    std::mt19937_64 engine(seed);
    const auto from = [&](uint64_t low, uint64_t high) { return low + engine() % (high - low); };
    int answered_count = 0;
    for (int number = 0; number < 60; ++number) {
        SCOPED_TRACE("HEADRACE_SEED=" + std::to_string(seed) + ", " + std::to_string(number));
        Workload workload =
            small_workload({.block_count = static_cast<uint32_t>(from(0, 6)),
                            .parts_per_layer = static_cast<uint32_t>(from(1, 4)),
                            .tied = from(0, 2) == 0,
                            .micro_batch_count = static_cast<uint32_t>(from(1, 4))});
        if (from(0, 2) == 0) workload.kept_bytes = from(1, 5) * page_bytes;
        Machine machine = small_machine();
        machine.drive.read_bytes_per_s = static_cast<double>(from(1, 1000)) * 1e6;
        machine.gpu_flops = static_cast<double>(from(1, 1000)) * 1e9;
        const Effort effort = effort_of(workload, 1e6);
        const TierBytes most = all_on(workload, Tier::ram);
        const Question question{.workload = workload,
                                .machine = machine,
                                .effort = effort,
                                .ceilings = {from(most.gpu_bytes / 2, 3 * most.gpu_bytes),
                                             from(most.ram_bytes / 8, 2 * most.ram_bytes), roomy},
                                .path_count = static_cast<uint32_t>(from(0, 3))};
        const auto answer = find_plan(question);
        if (!answer) continue;
        ++answered_count;
        ASSERT_NO_FATAL_FAILURE(expect_right(question, *answer));
    }
    EXPECT_GT(answered_count, 20);
}

}  // namespace
}  // namespace headrace::offload
