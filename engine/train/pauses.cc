#include "engine/train/pauses.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::engine {

namespace {

// The first multiple after `done`.
int64_t next_multiple(int64_t done, int64_t of) {
    return done - done % of + of;
}

}  // namespace

Pauses::Pauses(const RunConfig& config, std::optional<offload::CommitAt> commit_at,
               int64_t step_count)
    : step_count_(step_count), eval_steps_(config.eval_steps.value_or(step_count)) {
    if (commit_at == offload::CommitAt::saves) save_steps_ = config.save_steps.value_or(step_count);
    CHECK_GT(step_count_, 0);
    CHECK_GT(eval_steps_, 0);
    CHECK_GT(save_steps_.value_or(1), 0);
}

int64_t Pauses::next(int64_t done) const {
    CHECK_GE(done, 0);
    CHECK_LT(done, step_count_);
    return std::min({step_count_, next_multiple(done, eval_steps_),
                     next_multiple(done, save_steps_.value_or(step_count_))});
}

bool Pauses::evaluates_after(int64_t done) const {
    return done == step_count_ || done % eval_steps_ == 0;
}

bool Pauses::saves_after(int64_t done) const {
    return save_steps_ && (done == step_count_ || done % *save_steps_ == 0);
}

}  // namespace headrace::engine
