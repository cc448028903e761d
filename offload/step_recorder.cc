#include "offload/step_recorder.h"

#include <algorithm>

namespace headrace::offload {

StepRecorder::StepRecorder(int64_t warm_up_step_count) : warm_up_step_count_(warm_up_step_count) {
    CHECK_GE(warm_up_step_count, 1);
}

void StepRecorder::begin(const Schedule& schedule) {
    const uint32_t micro_batch_count = schedule.workload.micro_batch_count;
    is_recording_ =
        schedule_ == nullptr || micro_batch_count >= schedule_->workload.micro_batch_count;
    if (!is_recording_) return;
    if (schedule_ != &schedule) kept_ = {};
    schedule_ = &schedule;
    first_period_ = next_period_ + 1;  // never the neighbour of one of an earlier call
}

void StepRecorder::add(const Span& span) {
    if (!is_recording_) return;
    CHECK_LT(span.ticket.op, schedule_->ops.size());
    CHECK_LE(span.start_ns, span.end_ns);
    const int64_t period = first_period_ + span.ticket.period;
    Kept& kept = kept_[static_cast<size_t>(period % kept_period_count)];
    CHECK_LE(kept.period, period);
    if (kept.period != period) {
        kept.period = period;
        kept.step = next_step_++;
        kept.spans.clear();
        kept.decided_ns.reset();
        next_period_ = std::max(next_period_, period + 1);
    }
    kept.spans.push_back({{period, span.ticket.op}, span.start_ns, span.end_ns});
    if (schedule_->ops[span.ticket.op].kind == OpKind::verdict) kept.decided_ns = span.end_ns;
}

Timeline StepRecorder::timeline() const {
    Timeline timeline;
    for (const Kept& kept : kept_) {
        timeline.spans.insert(timeline.spans.end(), kept.spans.begin(), kept.spans.end());
    }
    return timeline;
}

std::vector<Window> StepRecorder::steps() const {
    std::vector<Window> warm_up;
    std::vector<Window> steps;
    const auto at = [&](int64_t period) -> const Kept& {
        return kept_[static_cast<size_t>(period % kept_period_count)];
    };
    for (int64_t period = std::max<int64_t>(1, next_period_ - kept_period_count + 1);
         period < next_period_; ++period) {
        const Kept& before = at(period - 1);
        const Kept& now = at(period);
        if (before.period != period - 1 || now.period != period) continue;
        if (!before.decided_ns || !now.decided_ns) continue;
        std::vector<Window>& kind = now.step < warm_up_step_count_ ? warm_up : steps;
        kind.push_back({.begin_ns = *before.decided_ns, .end_ns = *now.decided_ns});
    }
    return steps.empty() ? warm_up : steps;
}

std::optional<Window> StepRecorder::median_step() const {
    std::vector<Window> sorted = steps();
    if (sorted.empty()) return std::nullopt;
    const auto median = sorted.begin() + std::ssize(sorted) / 2;
    std::ranges::nth_element(sorted, median, {}, &Window::seconds);
    return *median;
}

}  // namespace headrace::offload
