// Goal: a rehearsal's made-up step is what the run file asks for at its largest, in tokens that the
// model has. Method: its counts and every token and target of one are looked at.
#include "engine/rehearse/made_up_step.h"

#include <gtest/gtest.h>

namespace headrace::engine {
namespace {

TEST(MadeUpStep, IsAsLargeAsTheRunMayBeAndHasTokensOfTheModel) {
    RunConfig config;
    config.gradient_accumulation_steps = 3;
    config.per_device_train_batch_size = 2;
    config.max_length = 50;
    LlamaConfig model;
    model.vocabulary_size = 32;
    const StepBatch step = made_up_step(config, model, 0);
    ASSERT_EQ(step.micro_batches.size(), 3u);
    EXPECT_EQ(step.token_count, 3 * 2 * 50);
    EXPECT_EQ(step.trained_token_count, 3 * 2 * 49);
    for (const TokenBatch& batch : step.micro_batches) {
        ASSERT_EQ(batch.input_ids.size(), 100u);
        ASSERT_EQ(batch.targets.size(), 100u);
        for (size_t t = 0; t < batch.input_ids.size(); ++t) {
            EXPECT_GE(batch.input_ids[t], 0);
            EXPECT_LT(batch.input_ids[t], 32);
            const bool is_last = t % 50 == 49;
            EXPECT_EQ(batch.targets[t], is_last ? not_trained : batch.input_ids[t + 1]);
        }
    }
    const auto tokens_of = [&](int64_t index) {
        return made_up_step(config, model, index).micro_batches[0].input_ids;
    };
    EXPECT_EQ(tokens_of(1), tokens_of(1));
    EXPECT_NE(tokens_of(1), tokens_of(2));
}

}  // namespace
}  // namespace headrace::engine
