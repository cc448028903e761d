#include "engine/train/step.h"

#include "engine/train/sha256.h"

namespace headrace::engine {

Progress advance(const Progress& before, const StepOutcome& outcome, const LossScaleRule& rule) {
    CHECK_GE(before.attempts, before.updates);
    Progress after = before;
    ++after.attempts;
    if (outcome.verdict == offload::Verdict::apply) {
        ++after.updates;
        after.skipped_in_a_row = 0;
        after.loss_scale = after_good_step(before.loss_scale, rule);
    } else {
        ++after.skipped_count;
        // A step without a trained token says nothing of the gradients.
        if (outcome.skip_reason == SkipReason::not_finite) {
            ++after.skipped_in_a_row;
            after.loss_scale = after_overflow(before.loss_scale, rule);
        }
    }
    Sha256 history;
    history.add(std::as_bytes(std::span(before.history)));
    history.add(std::as_bytes(std::span(&outcome.loss, 1)));
    history.add(std::as_bytes(std::span(&outcome.grad_norm, 1)));
    after.history = history.finish();
    CHECK_EQ(after.attempts, after.updates + after.skipped_count);
    return after;
}

float loss_scale_of_token(double scale, int64_t trained_token_count) {
    if (trained_token_count == 0) return 0;
    return static_cast<float>(scale / static_cast<double>(trained_token_count));
}

}  // namespace headrace::engine
