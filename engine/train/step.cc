#include "engine/train/step.h"

#include "engine/train/sha256.h"

namespace headrace::engine {

Progress advance(const Progress& before, const StepOutcome& outcome) {
    CHECK_GE(before.attempts, before.updates);
    Progress after = before;
    ++after.attempts;
    if (outcome.verdict == offload::Verdict::apply) {
        ++after.updates;
        after.skipped_in_a_row = 0;
    } else {
        ++after.skipped_count;
        // A step without a trained token says nothing of the gradients.
        if (outcome.skip_reason == SkipReason::not_finite) ++after.skipped_in_a_row;
    }
    Sha256 history;
    history.add(std::as_bytes(std::span(before.history)));
    history.add(std::as_bytes(std::span(&outcome.loss, 1)));
    history.add(std::as_bytes(std::span(&outcome.grad_norm, 1)));
    after.history = history.finish();
    CHECK_EQ(after.attempts, after.updates + after.skipped_count);
    return after;
}

}  // namespace headrace::engine
