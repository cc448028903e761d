#include "offload/critical_path.h"

#include <algorithm>

#include "offload/predecessors.h"

namespace headrace::offload {

namespace {

// What each op of a timeline waited for.
class Causes {
  public:
    Causes(const Schedule& schedule, const Timeline& timeline)
        : schedule_(schedule), predecessors_(schedule, timeline) {
        for (const Span& span : timeline.spans) of_lane_[lane_of(schedule, span)].push_back(span);
        for (std::vector<Span>& lane : of_lane_) std::ranges::sort(lane, {}, &Span::end_ns);
    }

    // What `span` waited for, or null. A result is a better reason than a lane, where both came at
    // the same moment.
    const Span* of(const Span& span) const {
        const Span* by_lane = before_on_lane(span);
        const Span* by_edge = predecessors_.last_before(span.ticket);
        if (by_lane == nullptr || by_edge == nullptr) return by_edge == nullptr ? by_lane : by_edge;
        return by_edge->end_ns >= by_lane->end_ns ? by_edge : by_lane;
    }

  private:
    // The last of the lane that ended before it began. An op that took no time is not before
    // itself, nor before another that it would be after.
    const Span* before_on_lane(const Span& span) const {
        const std::vector<Span>& lane = of_lane_[lane_of(schedule_, span)];
        auto end = std::ranges::upper_bound(lane, span.start_ns, {}, &Span::end_ns);
        while (end != lane.begin()) {
            --end;
            if (end->ticket < span.ticket) return &*end;
        }
        return nullptr;
    }

    const Schedule& schedule_;
    const Predecessors predecessors_;
    std::array<std::vector<Span>, lane_kind_count> of_lane_;
};

}  // namespace

std::vector<Span> critical_path(const Schedule& schedule, const Timeline& timeline) {
    if (timeline.spans.empty()) return {};
    const Causes causes(schedule, timeline);
    std::vector<Span> path = {std::ranges::max(timeline.spans, {}, &Span::end_ns)};
    while (const Span* cause = causes.of(path.back())) {
        CHECK_LE(path.size(), timeline.spans.size());
        path.push_back(*cause);
    }
    std::ranges::reverse(path);
    return path;
}

std::array<double, lane_kind_count> path_seconds(const Schedule& schedule,
                                                 const std::vector<Span>& path) {
    std::array<double, lane_kind_count> seconds = {};
    for (size_t i = 0; i < path.size(); ++i) {
        const int64_t start_ns = i == 0 ? path[i].start_ns : path[i - 1].end_ns;
        seconds[lane_of(schedule, path[i])] +=
            static_cast<double>(path[i].end_ns - start_ns) * 1e-9;
    }
    return seconds;
}

}  // namespace headrace::offload
