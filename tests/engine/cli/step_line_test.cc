// Goal: the line of a step, exactly, and what is unusual about it only where it is.
// Method: records in, text out.
#include "engine/cli/step_line.h"

#include <gmock/gmock.h>

#include <cmath>

namespace headrace::engine {
namespace {

using ::testing::HasSubstr;

StepRecord record() {
    return {.step = 12,
            .step_count = 30,
            .loss = 2.34567,
            .grad_norm = 1.5,
            .learning_rate = 2e-4,
            .time_ms = 500,
            .token_count = 1000,
            .micro_batch_count = 4,
            .nvme_read_bytes = 1'000'000'000};
}

TEST(StepLineTest, an_ordinary_step) {
    EXPECT_EQ(step_line(record(), 4),
              "step=12/30 loss=2.3457 grad_norm=1.500 lr=2.00e-04 tok/s=2000 time_ms=500 "
              "nvme_gb_per_s=2.00");
}

TEST(StepLineTest, acc_4_a_short_step_says_so) {
    StepRecord last = record();
    last.micro_batch_count = 2;
    EXPECT_THAT(step_line(last, 4), HasSubstr(" micro_batches=2"));
}

TEST(StepLineTest, acc_5_masked_micro_batches_and_skipped_steps_are_named) {
    StepRecord masked = record();
    masked.masked_micro_batch_count = 1;
    EXPECT_THAT(step_line(masked, 4), HasSubstr(" masked_micro_batches=1"));
    masked.is_skipped = true;
    masked.grad_norm = NAN;
    EXPECT_THAT(step_line(masked, 4), HasSubstr("grad_norm=nan"));
    EXPECT_THAT(step_line(masked, 4), HasSubstr(" skipped"));
}

TEST(StepLineTest, an_evaluation) {
    EXPECT_EQ(eval_line({.step = 0, .loss = 4.5, .trained_token_count = 64, .time_ms = 12.4}),
              "eval step=0 loss=4.5000 trained_tokens=64 time_ms=12");
}

}  // namespace
}  // namespace headrace::engine
