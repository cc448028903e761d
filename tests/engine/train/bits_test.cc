// Goal: no placement changes a bit of a training run. Losses, norms, weights and states are those
// of the independent reference (tests/engine/reference.h), with clipping triggering at every step.
// Method: a table of placements, each chosen for one hard thing, then seeded ones that mix all; on
// several jobs (tied or not, bf16 or fp32, 1 to 3 micro-batches of uneven shapes), on lanes and
// serially, with NaN in every slot that is about to be written. That bits can differ at all is
// shown by runs without clipping, with another rate and with other weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/checkpoint/checkpoint.h"
#include "engine/train/engine.h"
#include "tests/engine/train/tiny_run.h"

namespace headrace::engine::tests {
namespace {

using offload::Dtype;
using offload::Tier;

constexpr uint32_t all = 99;

struct JobKind {
    bool tied = false;
    Dtype dtype = Dtype::bf16;
    Dtype gradients = Dtype::bf16;
    int64_t micro_batch_count = 1;
    offload::StateFormat states = offload::StateFormat::fp32;
};

TinyJob make_job(const JobKind& kind, int64_t step_count = 4) {
    const LossScaleRule in_fp16{.initial_scale_power = 8};
    return {.model = tiny_model(tiny_config(kind.tied), kind.dtype),
            .steps = tiny_steps(step_count, kind.micro_batch_count),
            .gradients = kind.gradients,
            .states = kind.states,
            .loss_scale = kind.dtype == Dtype::fp16 ? in_fp16 : unscaled};
}

const std::vector<JobKind>& job_kinds() {
    static const std::vector<JobKind> kinds = {
        {.tied = true, .micro_batch_count = 3},
        {.tied = false, .micro_batch_count = 2},
        {.tied = true, .dtype = Dtype::fp32, .gradients = Dtype::fp32, .micro_batch_count = 2},
        {.tied = false, .gradients = Dtype::fp32, .micro_batch_count = 1}};
    return kinds;
}

// Every format of states beside every dtype, and one tied job of each.
const std::vector<JobKind>& state_kinds() {
    using offload::StateFormat;
    static const std::vector<JobKind> kinds = {
        {.tied = true, .micro_batch_count = 2, .states = StateFormat::bf16},
        {.tied = false, .gradients = Dtype::fp32, .states = StateFormat::bf16},
        {.dtype = Dtype::fp32, .gradients = Dtype::fp32, .states = StateFormat::bf16},
        {.tied = true, .dtype = Dtype::fp16, .gradients = Dtype::fp16, .micro_batch_count = 2},
        {.dtype = Dtype::fp16, .gradients = Dtype::fp32, .states = StateFormat::bf16},
        {.dtype = Dtype::fp16, .gradients = Dtype::fp16, .states = StateFormat::int8},
        {.tied = true, .micro_batch_count = 2, .states = StateFormat::int8},
        {.tied = false, .gradients = Dtype::fp32, .states = StateFormat::int8},
        {.dtype = Dtype::fp32, .gradients = Dtype::fp32, .states = StateFormat::int8}};
    return kinds;
}

const TinyPlan resident{.name = "resident",
                        .hi = "g",
                        .opt = "r",
                        .stash = "r",
                        .acc = "r",
                        .act = "g",
                        .group = all,
                        .window = all};
const TinyPlan in_ram{
    .name = "in ram", .hi = "r", .opt = "r", .stash = "r", .acc = "r", .act = "r"};
const TinyPlan on_nvme{.name = "on nvme", .part_blocks = 1};

TinyPlan varied(const TinyPlan& base, std::string name, auto change) {
    TinyPlan plan = base;
    plan.name = std::move(name);
    change(plan);
    return plan;
}

// Blocks that keep what their backward needs, none, some or all of them, on each tier.
std::vector<TinyPlan> keeping_plans() {
    std::vector<TinyPlan> plans;
    for (const char* kept : {"g", "r", "n", "-g", "r-", "gn"}) {
        const std::string name = std::string(", kept ") + kept;
        for (const TinyPlan& base : {resident, in_ram, on_nvme}) {
            plans.push_back(
                varied(base, base.name + name, [&](TinyPlan& plan) { plan.kept = kept; }));
        }
        plans.push_back(varied(in_ram, "group 2, one slot a ring" + name, [&](TinyPlan& plan) {
            plan.kept = kept;
            plan.group = 2;
            plan.ring_slots = 1;
            plan.is_serial = plan.kept == "gn";
        }));
    }
    return plans;
}

// Updates computed twice, some or all of those that can, gated by every kind of stash.
std::vector<TinyPlan> twicing_plans() {
    std::vector<TinyPlan> plans;
    for (const double share : {0.25, 0.5, 0.75, 1.0}) {
        for (const char* stash : {"n", "r", "gr"}) {
            const auto twice = [&](TinyPlan& plan) {
                plan.twice = share;
                plan.stash = stash;
                plan.commit = share > 0.5 ? TinyCommit::every_step : TinyCommit::never;
            };
            const std::string name = fmt::format(", twice {}, stash {}", share, stash);
            plans.push_back(varied(on_nvme, on_nvme.name + name, twice));
            plans.push_back(varied(on_nvme, "rings of 4, window 2" + name, [&](TinyPlan& plan) {
                twice(plan);
                plan.ring_slots = 4;
                plan.window = 2;
                plan.group = 2;
                plan.store = TinyStore::uring;
            }));
            plans.push_back(varied(on_nvme, "cached, kept, serial" + name, [&](TinyPlan& plan) {
                twice(plan);
                plan.hi = plan.opt = "rnn";
                plan.kept = "g";
                plan.group = all;
                plan.is_serial = true;
                plan.update_threads = 2;
            }));
        }
    }
    return plans;
}

// One row for each thing that could go wrong alone.
std::vector<TinyPlan> hand_made_plans() {
    std::vector<TinyPlan> plans = {resident, in_ram, on_nvme};
    plans.push_back(varied(on_nvme, "nvme, serial", [](TinyPlan& p) { p.is_serial = true; }));
    plans.push_back(varied(resident, "resident, serial", [](TinyPlan& p) { p.is_serial = true; }));
    for (const TinyPlan& base : {resident, in_ram, on_nvme}) {
        plans.push_back(varied(base, base.name + ", every step committed", [](TinyPlan& p) {
            p.commit = TinyCommit::every_step;
            p.store = TinyStore::uring;
            p.path_count = 2;
        }));
    }
    plans.push_back(varied(on_nvme, "one slot a ring", [](TinyPlan& p) { p.ring_slots = 1; }));
    plans.push_back(varied(on_nvme, "thread store, 3 paths", [](TinyPlan& p) {
        p.store = TinyStore::threads;
        p.path_count = 3;
    }));
    plans.push_back(varied(on_nvme, "io_uring, 3 paths, large parts", [](TinyPlan& p) {
        p.store = TinyStore::uring;
        p.path_count = 3;
        p.part_blocks = 64;
    }));
    plans.push_back(varied(on_nvme, "group 2, window 2, 2 update threads", [](TinyPlan& p) {
        p.group = 2;
        p.window = 2;
        p.update_threads = 2;
    }));
    plans.push_back(varied(on_nvme, "group all, window all", [](TinyPlan& p) {
        p.group = all;
        p.window = all;
        p.part_blocks = 5;
    }));
    plans.push_back(varied(on_nvme, "all on the gpu but states",
                           [](TinyPlan& p) { p.hi = p.stash = p.acc = p.act = "g"; }));
    plans.push_back(varied(in_ram, "states on the gpu", [](TinyPlan& p) { p.opt = "g"; }));
    plans.push_back(varied(in_ram, "tiers alternate", [](TinyPlan& p) {
        p.hi = "rn";
        p.opt = "nr";
        p.stash = "gnr";
        p.acc = "rn";
        p.act = "grn";
        p.part_blocks = 2;
        p.window = 2;
    }));
    plans.push_back(varied(in_ram, "layers alternate", [](TinyPlan& p) {
        p.hi = "gnr";
        p.opt = "grn";
        p.stash = "ng";
        p.acc = "ngr";
        p.act = "ng";
        p.part_blocks = 3;
        p.group = 2;
    }));
    plans.push_back(varied(on_nvme, "io_uring, small parts, long rings", [](TinyPlan& p) {
        p.store = TinyStore::uring;
        p.ring_slots = 6;
    }));
    return plans;
}

// NVME-4 too: the embedding is nine times as large as the parts of `on_nvme`.
TEST(Bits, nvme_4_EveryPlacementGivesTheReferencesBits) {
    for (const JobKind& kind : job_kinds()) {
        const TinyJob job = make_job(kind);
        const RunBits expected = reference_bits(job);
        for (const double norm : expected.norms) ASSERT_GT(norm, job.max_grad_norm);
        for (const TinyPlan& plan : hand_made_plans()) {
            EXPECT_EQ(difference(engine_bits(job, plan), expected), "")
                << plan << (kind.tied ? " tied " : " untied ") << name_of(kind.dtype);
        }
    }
}

TEST(Bits, WhatIsKeptIsWhatWouldBeComputedAgain) {
    for (const JobKind& kind : job_kinds()) {
        const TinyJob job = make_job(kind, 3);
        const RunBits expected = reference_bits(job);
        for (const TinyPlan& plan : keeping_plans()) {
            EXPECT_EQ(difference(engine_bits(job, plan), expected), "")
                << plan << (kind.tied ? " tied " : " untied ") << name_of(kind.dtype);
        }
    }
}

// Activations and gradients spilled as far as must be, from nothing to everything, on real drives;
// with rings of one slot, which forget, and of three, which still have what was spilled last.
TEST(Bits, WhatIsSpilledInPartComesBack) {
    for (const JobKind& kind : job_kinds()) {
        const TinyJob job{.model = tiny_model(tiny_config(kind.tied, 4), kind.dtype),
                          .steps = tiny_steps(3, kind.micro_batch_count),
                          .gradients = kind.gradients};
        const RunBits expected = reference_bits(job);
        for (const double near : {0.0, 0.25, 0.5, 0.75, 1.0}) {
            for (const offload::TierShares& shares :
                 {offload::TierShares{{0, near, 1 - near}},
                  offload::TierShares{{near, 1 - near, 0}},
                  offload::TierShares{{near / 2, near / 2, 1 - near}}}) {
                TinyPlan plan = on_nvme;
                plan.name = fmt::format("spilled {}", fmt::join(shares.share_of_tier, ", "));
                plan.spilled = shares;
                plan.group = near < 0.5 ? 2 : all;
                plan.ring_slots = shares.share_of_tier[0] > 0 ? 3 : 1;
                plan.part_blocks = 7;
                plan.store = TinyStore::uring;
                plan.commit = near == 0.5 ? TinyCommit::every_step : TinyCommit::never;
                plan.twice = near == 0.25 ? 0.5 : 0;
                plan.kept = near == 0.75 ? "n" : "-";
                EXPECT_EQ(difference(engine_bits(job, plan), expected), "")
                    << plan << (kind.tied ? " tied " : " untied ") << name_of(kind.dtype);
            }
        }
    }
}

// States in bf16 and int8 are rounded by a key that no placement, cut or thread is in. Each kind
// takes the plain placements and every third of the others.
TEST(Bits, EveryFormatOfStatesGivesTheReferencesBits) {
    const std::vector<TinyPlan> plans = hand_made_plans();
    std::set<std::string> states;
    for (size_t k = 0; k < state_kinds().size(); ++k) {
        const JobKind& kind = state_kinds()[k];
        const TinyJob job = make_job(kind);
        const RunBits expected = reference_bits(job);
        EXPECT_TRUE(states.insert(expected.homes.states_sha256).second);
        for (size_t i = 0; i < plans.size(); ++i) {
            if (i >= 3 && i % 3 != k % 3) continue;
            EXPECT_EQ(difference(engine_bits(job, plans[i]), expected), "")
                << plans[i] << " kind " << k;
        }
    }
}

// The seed is part of the key; in fp32 there is nothing to round. The loss, which knows nothing of
// states but through the weights, is that of fp32 at first and near it later.
TEST(Bits, TheSeedOfTheRoundingIsInTheNumericsOfLossyFormatsOnly) {
    const TinyJob exact = make_job({.micro_batch_count = 2});
    TinyJob reseeded = exact;
    reseeded.rounding_seed += 1;
    const RunBits expected = engine_bits(exact, in_ram);
    EXPECT_EQ(difference(engine_bits(reseeded, in_ram), expected), "");
    for (const offload::StateFormat states :
         {offload::StateFormat::bf16, offload::StateFormat::int8}) {
        TinyJob job = exact;
        job.states = states;
        const RunBits bits = engine_bits(job, in_ram);
        EXPECT_EQ(bits.losses[0], expected.losses[0]);
        EXPECT_NE(bits.homes, expected.homes);
        for (size_t step = 0; step < bits.losses.size(); ++step) {
            EXPECT_NEAR(bits.losses[step], expected.losses[step], 0.02 * expected.losses[step]);
        }
        job.rounding_seed += 1;
        EXPECT_NE(engine_bits(job, in_ram).homes, bits.homes);
    }
}

// With clipping at every step; that some are skipped: steps_test.
TEST(Bits, AnUpdateComputedTwiceIsThatOfOnce) {
    for (const JobKind& kind : job_kinds()) {
        const TinyJob job = make_job(kind, 3);
        const RunBits expected = reference_bits(job);
        for (const TinyPlan& plan : twicing_plans()) {
            EXPECT_EQ(difference(engine_bits(job, plan), expected), "")
                << plan << (kind.tied ? " tied " : " untied ") << name_of(kind.dtype);
        }
    }
}

std::string random_letters(std::mt19937& random, std::string_view tiers = "grn") {
    std::string letters;
    const size_t count = 1 + random() % 3;
    while (letters.size() < count) letters += tiers[random() % tiers.size()];
    return letters;
}

TinyPlan random_plan(uint32_t seed) {
    std::mt19937 random(seed);
    constexpr std::array<uint32_t, 3> counts = {1, 2, all};
    constexpr std::array<uint64_t, 5> part_blocks = {1, 2, 4, 7, 1'000'000};
    constexpr std::array<TinyStore, 3> stores = {TinyStore::memory, TinyStore::uring,
                                                 TinyStore::threads};
    TinyPlan plan{.name = "seed " + std::to_string(seed)};
    for (std::string* letters : {&plan.hi, &plan.opt, &plan.stash, &plan.acc, &plan.act}) {
        *letters = random_letters(random);
    }
    plan.kept = random_letters(random, "grn-");
    plan.twice = static_cast<double>(random() % 3) / 2;
    plan.group = counts[random() % counts.size()];
    plan.window = counts[random() % counts.size()];
    plan.part_blocks = part_blocks[random() % part_blocks.size()];
    plan.ring_slots = 1 + random() % 4;
    plan.update_threads = 1 + static_cast<int>(random() % 2);
    plan.store = stores[random() % stores.size()];
    plan.path_count = random() % 2 == 0 ? 1 : 3;
    plan.is_serial = random() % 8 == 0;
    constexpr std::array<TinyCommit, 4> commits = {TinyCommit::never, TinyCommit::every_step,
                                                   TinyCommit::at_saves, TinyCommit::in_place};
    plan.commit = commits[random() % commits.size()];
    return plan;
}

TEST(Bits, SeededPlacementsGiveTheReferencesBits) {
    constexpr uint32_t seed_count = 64;
    std::vector<TinyJob> jobs;
    std::vector<RunBits> expected;
    for (const std::vector<JobKind>* kinds : {&job_kinds(), &state_kinds()}) {
        for (const JobKind& kind : *kinds) {
            jobs.push_back(make_job(kind));
            expected.push_back(reference_bits(jobs.back()));
        }
    }
    for (uint32_t seed = 0; seed < seed_count; ++seed) {
        const size_t job = seed % jobs.size();
        const TinyPlan plan = random_plan(seed);
        EXPECT_EQ(difference(engine_bits(jobs[job], plan), expected[job]), "")
            << plan << " job " << job;
    }
}

// CLIP-1: the norm that is told is the one before clipping, and the update is that of the clipped
// gradient; without clipping, with another rate, with other weights or other tokens the bits are
// others, so that the equalities of this file say something.
TEST(Bits, clip_1_ClippingReachesTheUpdate) {
    const TinyJob job = make_job({.tied = true, .micro_batch_count = 2});
    const RunBits expected = reference_bits(job);
    TinyJob other = job;
    other.max_grad_norm = 0;
    const RunBits unclipped = reference_bits(other);
    EXPECT_EQ(unclipped.norms[0], expected.norms[0]);
    EXPECT_GT(expected.norms[0], job.max_grad_norm);
    for (const TinyPlan& plan : {resident, in_ram, on_nvme}) {
        EXPECT_EQ(difference(engine_bits(job, plan), expected), "") << plan;
        EXPECT_EQ(difference(engine_bits(other, plan), unclipped), "") << plan;
    }
    EXPECT_NE(unclipped.homes, expected.homes);

    other = job;
    other.learning_rate *= 1.001;
    EXPECT_NE(engine_bits(other, in_ram).homes, expected.homes);
    other = job;
    other.model = tiny_model(job.model.config, job.model.dtype, 2);
    EXPECT_NE(engine_bits(other, in_ram).homes, expected.homes);
    other = job;
    other.steps = tiny_steps(4, 2, 8);
    EXPECT_NE(engine_bits(other, in_ram).homes, expected.homes);
}

// MATH-1: 30 steps in fp32 whose only difference is the tier: equal at every step, the first
// included, and the loss falls.
TEST(Bits, math_1_TiersAgreeAtEveryStep) {
    TinyJob job = make_job({.dtype = Dtype::fp32, .gradients = Dtype::fp32}, 30);
    for (StepBatch& step : job.steps) step = job.steps.front();
    const RunBits none = engine_bits(job, resident);
    EXPECT_LT(none.losses.back(), 0.8 * none.losses.front());
    for (const TinyPlan& plan : {in_ram, on_nvme}) {
        EXPECT_EQ(difference(engine_bits(job, plan), none), "") << plan;
    }
}

// MATH-6: what is trained is what was loaded: a learning rate of 0 leaves every bit.
TEST(Bits, math_6_NoLearningRateNoChange) {
    for (const JobKind& kind : job_kinds()) {
        TinyJob job = make_job(kind, 2);
        for (const TinyPlan& plan : {resident, in_ram, on_nvme}) {
            TinyRun run(job, plan);
            const std::string loaded = run.engine().digest().value().weights_sha256;
            TinyJob still = job;
            still.learning_rate = 0;
            const RunBits bits = engine_bits(still, plan);
            EXPECT_EQ(bits.homes.weights_sha256, loaded) << plan;
            EXPECT_NE(engine_bits(job, plan).homes.weights_sha256, loaded) << plan;
        }
    }
}

// MATH-9: 200 orders of completion.
TEST(Bits, math_9_LateTransfersChangeNothing) {
    constexpr uint64_t seed_count = 200;
    const TinyJob job{.model = tiny_model(tiny_config(true, 1), Dtype::bf16),
                      .steps = tiny_steps(2, 2)};
    const RunBits expected = reference_bits(job);
    for (uint64_t seed = 0; seed < seed_count; ++seed) {
        TinyPlan plan{.name = "late", .part_blocks = 10, .store = TinyStore::late};
        plan.window = 1 + static_cast<uint32_t>(seed % 2);
        plan.ring_slots = 1 + static_cast<uint32_t>(seed % 4);
        plan.late_seed = seed;
        plan.commit = seed % 3 == 0 ? TinyCommit::never : TinyCommit::every_step;
        if (seed % 5 == 0) plan.opt = "rng";
        if (seed % 4 == 1) plan.kept = "n";
        plan.twice = static_cast<double>(seed % 3) / 2;
        ASSERT_EQ(difference(engine_bits(job, plan), expected), "") << plan << " seed " << seed;
    }
}

// LOAD-2: a tied model has one embedding with one state, loaded once, exported once, whose gradient
// is the sum of both uses, wherever it lives.
TEST(Bits, load_2_TiedWeightsAreOneParameter) {
    const JobKind tied{.tied = true, .micro_batch_count = 2};
    const TinyJob job = make_job(tied, 10);
    const RunBits expected = reference_bits(job);
    const TinyJob untied = make_job({.tied = false, .micro_batch_count = 2}, 10);
    for (const TinyPlan& plan : {resident, on_nvme}) {
        TinyRun run(job, plan);
        ASSERT_TRUE(run.train(0, 10));
        EXPECT_EQ(difference(run.bits(), expected), "") << plan;
        const TestFolder folder;
        write_tiny_checkpoint(job.model, folder);
        auto writer = CheckpointWriter::create({.folder = folder.path("out"),
                                                .source_folder = folder.path("model"),
                                                .layers = job.model.layout.specs,
                                                .dtype = job.model.dtype});
        ASSERT_TRUE(writer.ok()) << writer.error().text();
        ASSERT_TRUE(run.engine().export_to(*writer));
        ASSERT_TRUE(writer->finish());
        const Checkpoint trained = Checkpoint::open(folder.path("out")).value();
        EXPECT_EQ(trained.find("lm_head.weight"), nullptr);
        ASSERT_NE(trained.find("model.embed_tokens.weight"), nullptr);
        TinyRun other(untied, plan);
        EXPECT_LT(run.engine().tier_bytes(Tier::ram) + run.store_bytes(),
                  other.engine().tier_bytes(Tier::ram) + other.store_bytes());
    }
}

}  // namespace
}  // namespace headrace::engine::tests
