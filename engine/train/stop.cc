#include "engine/train/stop.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/check.h"
#include "offload/numbers.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Status;

namespace {

// "; the loss scale falls from 65,536 to 32,768".
std::string scale_after(const StepOutcome& outcome) {
    const double after = outcome.progress.loss_scale.scale;
    const std::string now = offload::format_number(after);
    if (after == outcome.loss_scale) return fmt::format("; the loss scale stays {}", now);
    return fmt::format("; the loss scale falls from {} to {}",
                       offload::format_number(outcome.loss_scale), now);
}

}  // namespace

std::string describe_skip(const StepOutcome& outcome, bool has_loss_scale) {
    CHECK_EQ(outcome.verdict, offload::Verdict::skip);
    CHECK(outcome.skip_reason != SkipReason::none);
    if (outcome.skip_reason == SkipReason::nothing_to_train) {
        return fmt::format("step {} has no trained token: no update", outcome.step + 1);
    }
    return fmt::format(
        "step {} skipped: the gradient of {} is not finite; weights and states are unchanged{}",
        outcome.step + 1, outcome.skip_tensor, has_loss_scale ? scale_after(outcome) : "");
}

Status check_converges(const StepOutcome& outcome, const LossScaleRule& rule) {
    if (outcome.verdict == offload::Verdict::apply) return {};
    if (outcome.is_scale_exhausted) {
        return Error{ErrorCode::diverged,
                     fmt::format("the gradient of {} is not finite at step {}, with the loss scale "
                                 "at its minimum, {}",
                                 outcome.skip_tensor, outcome.step + 1,
                                 offload::format_number(outcome.loss_scale)),
                     "the numbers left fp16 without the scale's help: train in bf16, lower "
                     "learning_rate, or look at the data"};
    }
    const bool is_falling = rule.fixed_scale == 0;
    const int64_t in_a_row = outcome.progress.skipped_in_a_row;
    if (is_falling || in_a_row <= skipped_steps_max) return {};
    return Error{ErrorCode::diverged,
                 fmt::format("{} steps in a row had gradients that are not finite, the last in {}; "
                             "lower learning_rate, or look at the data of these steps",
                             in_a_row, outcome.skip_tensor),
                 ""};
}

uint64_t bytes_after_one_more_step(const Written& written, const DriveWrites& planned) {
    CHECK_LE(written.at_rest_bytes, written.total_bytes);
    CHECK_GE(written.step_count, 0);
    // Two bounds: what steps write at most, since nothing was under way; or what the last look saw,
    // which was before a step that is under way, this one, and the updates of the one before both.
    const uint64_t since_rest =
        written.at_rest_bytes +
        (static_cast<uint64_t>(written.step_count) + 1) * planned.step_bytes;
    const uint64_t since_look = written.total_bytes + 3 * planned.step_bytes;
    return std::min(since_rest, since_look) + planned.save_bytes + planned.evaluation_bytes;
}

bool is_at_write_limit(const Written& written, const DriveWrites& planned,
                       std::optional<uint64_t> limit_bytes, uint64_t due_bytes) {
    return limit_bytes && bytes_after_one_more_step(written, planned) + due_bytes > *limit_bytes;
}

Error stopped_at_write_limit(const Written& written, const DriveWrites& planned,
                             uint64_t limit_bytes, const std::string& when) {
    std::string most = "a step writes " + format_bytes(planned.step_bytes);
    if (planned.save_bytes > 0) most += ", a save " + format_bytes(planned.save_bytes);
    if (planned.evaluation_bytes > 0) {
        most += ", an evaluation " + format_bytes(planned.evaluation_bytes);
    }
    return {ErrorCode::failed,
            fmt::format("stopped {}: {} are written of the {} that nvme_write_limit allows, and {}",
                        when, format_bytes(written.total_bytes), format_bytes(limit_bytes), most),
            "raise the limit and resume, or place less on nvme"};
}

Error stopped_by_signal(int number, const std::string& when, Kept kept) {
    CHECK_GT(number, 0);
    return {ErrorCode::stopped,
            fmt::format("stopped by signal {} {}{}", number, when,
                        kept == Kept::nothing ? "; the weights of this run are not kept" : ""),
            ""};
}

}  // namespace headrace::engine
