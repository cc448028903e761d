#include "nvme/rate_watch.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::nvme {

namespace {

double middle_of(std::vector<double> values) {
    CHECK(!values.empty());
    std::ranges::sort(values);
    return values[values.size() / 2];
}

}  // namespace

std::optional<RateChange> RateWatch::add(uint64_t moved_bytes, double busy_seconds) {
    CHECK_GE(busy_seconds, 0.0);
    if (has_told_ || moved_bytes == 0 || busy_seconds == 0.0) return std::nullopt;
    const double rate = static_cast<double>(moved_bytes) / busy_seconds;
    if (started_bytes_per_s_ == 0) {
        recent_.push_back(rate);
        if (recent_.size() < steps_to_learn) return std::nullopt;
        started_bytes_per_s_ = middle_of(recent_);
        CHECK_GT(started_bytes_per_s_, 0.0);
        recent_.clear();
        return std::nullopt;
    }
    const double change = rate / started_bytes_per_s_ - 1;
    const bool is_slower = change < -change_to_tell;
    const bool is_faster = change > change_to_tell;
    const bool was_faster = !recent_.empty() && recent_.back() > started_bytes_per_s_;
    if (!recent_.empty() && was_faster != is_faster) recent_.clear();
    if (!is_slower && !is_faster) {
        recent_.clear();
        return std::nullopt;
    }
    recent_.push_back(rate);
    if (recent_.size() < steps_to_tell) return std::nullopt;
    has_told_ = true;
    return RateChange{.started_bytes_per_s = started_bytes_per_s_,
                      .observed_bytes_per_s = middle_of(recent_)};
}

}  // namespace headrace::nvme
