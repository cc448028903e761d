// Goal: a run is ended at the step at which it must be, not one before, and is told in words that
// say what to do. Method: outcomes and counts made by hand, at the border and on both sides of it.
#include "engine/train/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::engine {
namespace {

using offload::ErrorCode;
using offload::Verdict;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr LossScaleRule falling{};

StepOutcome skipped(int64_t in_a_row) {
    StepOutcome outcome;
    outcome.step = 6;
    outcome.skip_reason = SkipReason::not_finite;
    outcome.skip_tensor = "model.norm.weight";
    outcome.loss_scale = 1024;
    outcome.progress.skipped_in_a_row = in_a_row;
    outcome.progress.loss_scale.scale = 512;
    return outcome;
}

TEST(StopTest, so_many_skips_in_a_row_are_a_divergence) {
    EXPECT_TRUE(check_converges(skipped(skipped_steps_max), unscaled).ok());
    const offload::Status diverged = check_converges(skipped(skipped_steps_max + 1), unscaled);
    ASSERT_FALSE(diverged.ok());
    EXPECT_EQ(diverged.error().code, ErrorCode::diverged);
    EXPECT_THAT(diverged.error().text(), HasSubstr("21 steps in a row"));
    EXPECT_THAT(diverged.error().text(), HasSubstr("model.norm.weight"));
    StepOutcome applied = skipped(skipped_steps_max + 1);
    applied.verdict = Verdict::apply;
    EXPECT_TRUE(check_converges(applied, unscaled).ok());
}

TEST(StopTest, a_scale_that_falls_ends_the_run_only_at_its_minimum) {
    StepOutcome outcome = skipped(10 * skipped_steps_max);
    EXPECT_TRUE(check_converges(outcome, falling).ok());
    outcome.is_scale_exhausted = true;
    const offload::Status diverged = check_converges(outcome, falling);
    ASSERT_FALSE(diverged.ok());
    EXPECT_EQ(diverged.error().code, ErrorCode::diverged);
    EXPECT_THAT(diverged.error().text(),
                HasSubstr("at step 7, with the loss scale at its minimum"));
    EXPECT_THAT(diverged.error().text(), HasSubstr("1,024"));
}

TEST(StopTest, a_skip_is_told_with_its_reason) {
    StepOutcome outcome = skipped(1);
    EXPECT_THAT(describe_skip(outcome, true),
                HasSubstr("step 7 skipped: the gradient of model.norm.weight is not finite"));
    EXPECT_THAT(describe_skip(outcome, true),
                HasSubstr("; the loss scale falls from 1,024 to 512"));
    EXPECT_THAT(describe_skip(outcome, false), Not(HasSubstr("loss scale")));
    outcome.progress.loss_scale.scale = 1024;
    EXPECT_THAT(describe_skip(outcome, true), HasSubstr("; the loss scale stays 1,024"));
    outcome.skip_reason = SkipReason::nothing_to_train;
    EXPECT_EQ(describe_skip(outcome, true), "step 7 has no trained token: no update");
}

// Steps since nothing was under way, each as large as any; then what was looked at and three of
// them, where that is less: both are more than can have been written.
TEST(StopTest, the_write_limit_leaves_room_for_what_is_under_way) {
    const DriveWrites planned{.step_bytes = 20};
    Written written{.total_bytes = 100, .at_rest_bytes = 100};
    EXPECT_EQ(bytes_after_one_more_step(written, planned), 120u);
    written.step_count = 2;
    EXPECT_EQ(bytes_after_one_more_step(written, planned), 160u);
    written = {.total_bytes = 130, .at_rest_bytes = 100, .step_count = 9};  // smaller steps
    EXPECT_EQ(bytes_after_one_more_step(written, planned), 190u);
    EXPECT_FALSE(is_at_write_limit(written, planned, std::nullopt));
    EXPECT_FALSE(is_at_write_limit(written, planned, 190));
    EXPECT_TRUE(is_at_write_limit(written, planned, 189));
    EXPECT_FALSE(is_at_write_limit(written, planned, 200, 10));
    EXPECT_TRUE(is_at_write_limit(written, planned, 200, 11));
    EXPECT_FALSE(is_at_write_limit({}, {}, 0));
}

// The first save is the one that a stop or the end makes: none has been seen before it.
TEST(StopTest, the_write_limit_leaves_room_for_the_first_save) {
    const DriveWrites planned{
        .load_bytes = 7, .step_bytes = 4, .save_bytes = 30, .evaluation_bytes = 2};
    const Written loaded{.total_bytes = 7, .at_rest_bytes = 7};
    EXPECT_FALSE(is_at_write_limit(loaded, planned, 43));
    EXPECT_TRUE(is_at_write_limit(loaded, planned, 42));
    const offload::Error stopped = stopped_at_write_limit(loaded, planned, 42, "after step 3 of 8");
    EXPECT_EQ(stopped.code, ErrorCode::failed);
    EXPECT_THAT(stopped.text(),
                HasSubstr("stopped after step 3 of 8: 7 B are written of the 42 B that "
                          "nvme_write_limit allows, and a step writes 4 B, a save 30 B, an "
                          "evaluation 2 B"));
}

TEST(StopTest, a_signal_says_what_is_lost) {
    EXPECT_EQ(stopped_by_signal(2, "", Kept::nothing).code, ErrorCode::stopped);
    const auto text = [](Kept kept) {
        return stopped_by_signal(2, "after step 3 of 8", kept).text();
    };
    EXPECT_EQ(text(Kept::resume_point), "stopped by signal 2 after step 3 of 8");
    EXPECT_THAT(text(Kept::nothing), HasSubstr("the weights of this run are not kept"));
}

}  // namespace
}  // namespace headrace::engine
