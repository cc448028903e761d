// Goal: what a step is made of does not confuse the engine: windows of any number of micro-batches,
// masked ones, gradients that are not finite, evaluations in between, a drive that fails.
// Method: each on several placements, against the independent reference where it knows the case,
// else by digests before and after. An Inf sits in an embedding row that only chosen steps read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/train/engine.h"
#include "tests/engine/train/tiny_run.h"

namespace headrace::engine::tests {
namespace {

using offload::Dtype;
using offload::Verdict;
using ::testing::HasSubstr;

const std::vector<TinyPlan>& plans() {
    static const std::vector<TinyPlan> all = {
        {.name = "resident",
         .hi = "g",
         .opt = "r",
         .stash = "r",
         .acc = "r",
         .act = "g",
         .kept = "g",
         .group = 99,
         .window = 99},
        {.name = "in ram",
         .hi = "r",
         .opt = "r",
         .stash = "r",
         .acc = "r",
         .act = "r",
         .kept = "r",
         .part_blocks = 4},
        {.name = "on nvme", .kept = "-n", .group = 2, .window = 2, .part_blocks = 3},
        {.name = "on nvme, updated twice", .twice = 1, .part_blocks = 3},
        {.name = "mixed, io_uring",
         .hi = "rn",
         .opt = "nr",
         .stash = "rn",
         .acc = "nr",
         .act = "gn",
         .part_blocks = 2,
         .store = TinyStore::uring}};
    return all;
}

// The job without its steps: an untied model, bf16.
TinyJob make_job(std::vector<StepBatch> steps) {
    return {.model = tiny_model(tiny_config(false), Dtype::bf16), .steps = std::move(steps)};
}

StepBatch step_of(std::initializer_list<TinyBatch> batches) {
    std::vector<TokenBatch> made;
    for (const TinyBatch& batch : batches) made.push_back(make_tiny_batch(batch));
    return make_step(std::move(made));
}

// The last row of the vocabulary holds an Inf; a step reads it only if `touches`.
constexpr int32_t poisoned_token = tiny_vocabulary - 1;

StepBatch poisoned_step(uint64_t seed, bool touches) {
    TokenBatch first = make_tiny_batch({.seed = seed, .token_end = poisoned_token});
    TokenBatch second =
        make_tiny_batch({.column_count = 24, .seed = seed + 100, .token_end = poisoned_token});
    if (touches) second.input_ids[3] = poisoned_token;
    return make_step({first, second});
}

TinyJob poisoned_job(int64_t step_count, std::set<int64_t> bad_steps) {
    TinyJob job = make_job({});
    const uint16_t infinity = 0x7F80;
    const auto row = static_cast<size_t>(poisoned_token * job.model.config.hidden_size);
    std::memcpy(job.model.weights.front().data() + row * sizeof(infinity), &infinity,
                sizeof(infinity));
    for (int64_t step = 0; step < step_count; ++step) {
        job.steps.push_back(poisoned_step(static_cast<uint64_t>(step), bad_steps.contains(step)));
    }
    job.bad_steps = std::move(bad_steps);
    return job;
}

// ACC-1, ACC-2: every step counts all its micro-batches, the later ones as the first; a step of one
// micro-batch may follow one of four, and the other way round.
TEST(Steps, acc_1_acc_2_EveryStepCountsAllItsMicroBatches) {
    const StepBatch four = tiny_steps(1, 4).front();
    TinyJob still = make_job({four, four, four});
    still.learning_rate = 0;
    still.weight_decay = 0;
    std::vector<StepBatch> steps;
    for (const int64_t count : {1, 4, 4, 2, 1, 3}) {
        steps.push_back(tiny_steps(1, count, 20 + static_cast<uint64_t>(count)).front());
    }
    const TinyJob changing = make_job(steps);
    const RunBits expected_still = reference_bits(still);
    const RunBits expected = reference_bits(changing);
    for (const TinyPlan& plan : plans()) {
        const RunBits bits = engine_bits(still, plan);
        EXPECT_EQ(bits.norms[0], bits.norms[1]) << plan;
        EXPECT_EQ(bits.norms[0], bits.norms[2]) << plan;
        EXPECT_EQ(difference(bits, expected_still), "") << plan;
        EXPECT_EQ(difference(engine_bits(changing, plan), expected), "") << plan;
    }
}

// ACC-4: micro-batches weigh by their trained tokens, not by their number: 3 and 97 tokens give the
// loss and the gradient of one batch of 100; and a short last window counts as what it is.
TEST(Steps, acc_4_MicroBatchesWeighByTheirTokens) {
    constexpr int64_t columns = 104;
    TokenBatch many = make_tiny_batch({.column_count = columns, .seed = 1});
    TokenBatch few = make_tiny_batch({.column_count = columns, .seed = 2});
    for (size_t token = 0; token < columns; ++token) {
        many.targets[token] = token < 97 ? many.input_ids[token + 1] : not_trained;
        few.targets[token] = token < 3 ? few.input_ids[token + 1] : not_trained;
    }
    many.trained_token_count = 97;
    few.trained_token_count = 3;
    TokenBatch both = many;
    both.row_count = 2;
    both.input_ids.insert(both.input_ids.end(), few.input_ids.begin(), few.input_ids.end());
    both.targets.insert(both.targets.end(), few.targets.begin(), few.targets.end());
    both.trained_token_count = 100;
    both.token_count = 2 * columns;
    TinyJob apart{.model = tiny_model(tiny_config(true), Dtype::fp32),
                  .steps = {make_step({few, many})},
                  .gradients = Dtype::fp32};
    TinyJob together = apart;
    together.steps = {make_step({both})};
    const RunBits expected = reference_bits(apart);
    for (const TinyPlan& plan : plans()) {
        const RunBits bits = engine_bits(apart, plan);
        EXPECT_EQ(difference(bits, expected), "") << plan;
        const RunBits whole = engine_bits(together, plan);
        EXPECT_NEAR(bits.losses[0], whole.losses[0], 1e-6 * whole.losses[0]) << plan;
        EXPECT_NEAR(bits.norms[0], whole.norms[0], 1e-5 * whole.norms[0]) << plan;
    }

    std::vector<StepBatch> windows = tiny_steps(3, 4);
    windows[2].micro_batches.resize(2);
    windows[2] = make_step(std::move(windows[2].micro_batches));
    const TinyJob ten = make_job(windows);
    const RunBits expected_ten = reference_bits(ten);
    for (const TinyPlan& plan : plans()) {
        TinyRun run(ten, plan);
        ASSERT_TRUE(run.train(0, 3));
        EXPECT_EQ(run.outcomes().back().progress.updates, 3);
        EXPECT_EQ(difference(run.bits(), expected_ten), "") << plan;
    }
}

// ACC-5: a masked micro-batch, first or not, adds nothing and is counted; a masked step makes no
// update, has no loss, and the steps after it are as if it had not been.
TEST(Steps, acc_5_MaskedMicroBatchesAddNothing) {
    const TinyJob job =
        make_job({step_of({{.seed = 1}, {.seed = 2}, {.seed = 3, .masked = true}, {.seed = 4}}),
                  step_of({{.seed = 5, .masked = true}, {.seed = 6}}),
                  step_of({{.seed = 7, .masked = true}, {.seed = 8, .masked = true}}),
                  step_of({{.seed = 9}, {.seed = 10}})});
    const RunBits expected = reference_bits(job);
    for (const TinyPlan& plan : plans()) {
        TinyRun run(job, plan);
        ASSERT_TRUE(run.train(0, 2));
        const HomesDigest before = run.engine().digest().value();
        ASSERT_TRUE(run.train(2, 1));
        EXPECT_EQ(run.engine().digest().value(), before) << plan;
        ASSERT_TRUE(run.train(3, 1));
        EXPECT_EQ(difference(run.bits(), expected), "") << plan;
        // The same in one go, where the masked step is in flight with its neighbours.
        EXPECT_EQ(difference(engine_bits(job, plan), expected), "") << plan;
        const std::vector<StepOutcome>& outcomes = run.outcomes();
        EXPECT_EQ(outcomes[0].counts.masked_micro_batch_count, 1);
        EXPECT_TRUE(std::isfinite(outcomes[0].loss));
        EXPECT_EQ(outcomes[2].skip_reason, SkipReason::nothing_to_train);
        EXPECT_TRUE(std::isnan(outcomes[2].loss)) << "a loss of 0 would look like success";
        EXPECT_EQ(outcomes[2].progress.updates, 2);
        EXPECT_EQ(outcomes[3].progress.updates, 3);
    }
}

// CLIP-2: an Inf at one step leaves weights and moments as they were, is named, and the run goes on
// as if the step had not been; with clipping or without.
TEST(Steps, clip_2_ANonFiniteGradientChangesNothing) {
    for (const double max_grad_norm : {0.1, 0.0}) {
        TinyJob job = poisoned_job(5, {3});
        job.max_grad_norm = max_grad_norm;
        const RunBits expected = reference_bits(job);
        for (const TinyPlan& plan : plans()) {
            TinyRun run(job, plan);
            ASSERT_TRUE(run.train(0, 3));
            const HomesDigest before = run.engine().digest().value();
            ASSERT_TRUE(run.train(3, 1));
            EXPECT_EQ(run.engine().digest().value(), before) << plan;
            ASSERT_TRUE(run.train(4, 1));
            EXPECT_EQ(difference(run.bits(), expected), "") << plan;
            EXPECT_EQ(difference(engine_bits(job, plan), expected), "") << plan;
            const StepOutcome& bad = run.outcomes()[3];
            EXPECT_EQ(bad.verdict, Verdict::skip);
            EXPECT_EQ(bad.skip_reason, SkipReason::not_finite);
            EXPECT_EQ(bad.skip_tensor, "model.embed_tokens.weight");
            EXPECT_TRUE(std::isnan(bad.grad_norm));
        }
    }
}

// A loss scale that is a power of two is exact in bf16 and fp32: norms, clipping, weights and
// states are those of a run without one, and a step that is not finite lowers the scale and nothing
// else.
TEST(Steps, clip_2_TheLossScaleFallsWithASkippedStepAndChangesNoBit) {
    for (const double max_grad_norm : {0.1, 0.0}) {
        TinyJob job = poisoned_job(7, {1, 2, 4});
        job.max_grad_norm = max_grad_norm;
        const RunBits unscaled_bits = reference_bits(job);
        job.loss_scale = {.initial_scale_power = 10, .window = 1, .hysteresis = 2};
        const RunBits expected = reference_bits(job);
        EXPECT_EQ(difference(expected, unscaled_bits), "");
        // Good, bad (hysteresis), bad (halved), good, bad (halved: not full again), good, good
        // (doubled: one good step stood before).
        const std::vector<double> scales = {1024, 1024, 1024, 512, 512, 256, 256};
        for (const TinyPlan& plan : plans()) {
            TinyRun run(job, plan);
            ASSERT_TRUE(run.train(0, 7));
            EXPECT_EQ(difference(run.bits(), expected), "") << plan;
            for (size_t step = 0; step < scales.size(); ++step) {
                EXPECT_EQ(run.outcomes()[step].loss_scale, scales[step]) << plan << step;
                EXPECT_FALSE(run.outcomes()[step].is_scale_exhausted);
            }
            EXPECT_EQ(run.engine().progress().loss_scale,
                      (LossScale{.scale = 512, .good_step_count = 2, .hysteresis_left = 2}));
        }
    }
    TinyJob exhausted = poisoned_job(2, {1});
    exhausted.loss_scale = {.initial_scale_power = 3, .hysteresis = 1, .min_scale = 8};
    TinyRun run(exhausted, plans().front());
    ASSERT_TRUE(run.train(0, 2));
    EXPECT_FALSE(run.outcomes()[0].is_scale_exhausted);
    EXPECT_TRUE(run.outcomes()[1].is_scale_exhausted);
}

// CLIP-4: a skipped step moves neither the learning rate nor the count of updates.
TEST(Steps, clip_4_ASkippedStepDoesNotMoveTheRate) {
    const TinyJob job = poisoned_job(10, {0, 4, 5, 9});
    const RunBits expected = reference_bits(job);
    for (const TinyPlan& plan : plans()) {
        TinyRun run(job, plan);
        ASSERT_TRUE(run.train(0, 10));
        EXPECT_EQ(difference(run.bits(), expected), "") << plan;
        const std::vector<int64_t> updates_before = {0, 0, 1, 2, 3, 3, 3, 4, 5, 6};
        for (size_t step = 0; step < updates_before.size(); ++step) {
            EXPECT_EQ(run.outcomes()[step].learning_rate, job.rate_of(updates_before[step]))
                << plan << " step " << step;
        }
        EXPECT_EQ(run.outcomes().back().progress.updates, 6);
    }
}

// VAR-2: an evaluation between any two steps, larger than a step's window, changes nothing and says
// the same everywhere.
TEST(Steps, var_2_EvaluationsInBetweenChangeNothing) {
    const TinyJob job = make_job(tiny_steps(4, 2));
    const RunBits expected = reference_bits(job);
    std::vector<TokenBatch> held_out;
    for (uint64_t seed = 70; seed < 75; ++seed) held_out.push_back(make_tiny_batch({.seed = seed}));
    std::vector<double> losses;
    for (const TinyPlan& plan : plans()) {
        TinyRun run(job, plan);
        for (int64_t step = 0; step < 4; ++step) {
            const EvalOutcome first = run.engine().evaluate(held_out).value();
            const EvalOutcome again = run.engine().evaluate(held_out).value();
            EXPECT_EQ(first.loss, again.loss) << plan;
            EXPECT_EQ(first.trained_token_count, 5 * held_out[0].trained_token_count);
            ASSERT_TRUE(run.train(step, 1));
            if (losses.size() <= static_cast<size_t>(step)) losses.push_back(first.loss);
            EXPECT_EQ(losses[static_cast<size_t>(step)], first.loss) << plan << " step " << step;
        }
        EXPECT_EQ(difference(run.bits(), expected), "") << plan;
    }
    EXPECT_NE(losses[0], losses[3]);
}

// A transfer that fails ends the run with the op it belonged to; nothing hangs.
TEST(Steps, AFailedTransferEndsTheRun) {
    const TinyJob job = make_job(tiny_steps(4, 2));
    for (const uint64_t failing : {60u, 150u, 333u, 700u, 1001u}) {
        for (const bool is_serial : {false, true}) {
            TinyPlan plan{.name = "failing", .part_blocks = 1, .store = TinyStore::late};
            plan.failing_transfer = failing;
            plan.is_serial = is_serial;
            TinyRun run(job, plan);
            const offload::Status status = run.train(0, 4);
            ASSERT_FALSE(status.ok()) << failing;
            EXPECT_EQ(status.error().code, offload::ErrorCode::failed);
            EXPECT_THAT(status.error().text(), HasSubstr("part ")) << failing;
        }
    }
}

}  // namespace
}  // namespace headrace::engine::tests
