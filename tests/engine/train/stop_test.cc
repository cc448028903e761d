// Goal: a run is ended at the step at which it must be, not one before, and is told in words that
// say what to do. Method: outcomes and counts made by hand, at the border and on both sides of it.
#include "engine/train/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/units.h"

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

// Two steps can still be open when a run is asked to stop, and a save be due before the last one.
TEST(StopTest, the_write_limit_leaves_room_for_two_steps_and_their_saves) {
    const Written written{.total_bytes = 60 * offload::mib, .step_bytes_max = 20 * offload::mib};
    EXPECT_FALSE(is_at_write_limit(written, std::nullopt));
    EXPECT_FALSE(is_at_write_limit(written, 100 * offload::mib));
    EXPECT_TRUE(is_at_write_limit(written, 100 * offload::mib - 1));
    EXPECT_FALSE(is_at_write_limit({}, 0));
    const Written saving{.total_bytes = 60, .step_bytes_max = 4, .save_bytes_max = 30};
    EXPECT_FALSE(is_at_write_limit(saving, 128));
    EXPECT_TRUE(is_at_write_limit(saving, 127));
    EXPECT_THAT(stopped_at_write_limit(saving, 127, "after step 3 of 8").text(),
                HasSubstr("and a step writes 4 B, a save 30 B"));
    const offload::Error stopped =
        stopped_at_write_limit(written, 99 * offload::mib, "after step 3 of 8");
    EXPECT_EQ(stopped.code, ErrorCode::failed);
    EXPECT_THAT(stopped.text(),
                HasSubstr("stopped after step 3 of 8: 60.0 MiB are written of the 99.0 MiB that "
                          "nvme_write_limit allows, and a step writes 20.0 MiB"));
}

TEST(StopTest, a_signal_says_what_is_lost) {
    const auto text = [](Kept kept) {
        return stopped_by_signal(2, "after step 3 of 8", kept).text();
    };
    EXPECT_EQ(text(Kept::resume_point), "stopped by signal 2 after step 3 of 8");
    EXPECT_THAT(text(Kept::nothing), HasSubstr("the weights of this run are not kept"));
}

}  // namespace
}  // namespace headrace::engine
