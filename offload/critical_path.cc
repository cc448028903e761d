#include "offload/critical_path.h"

#include <algorithm>
#include <map>

namespace headrace::offload {

namespace {

// Spans by ticket and, per lane, by their end.
class Spans {
  public:
    Spans(const Schedule& schedule, const Timeline& timeline)
        : schedule_(schedule), edges_into_(schedule.ops.size()) {
        for (const Edge& edge : schedule.edges) edges_into_[edge.target].push_back(edge);
        for (const Span& span : timeline.spans) {
            CHECK_LT(span.ticket.op, schedule.ops.size());
            of_ticket_.emplace(span.ticket, span);
            of_lane_[lane_of(span)].push_back(span);
        }
        for (std::vector<Span>& lane : of_lane_) std::ranges::sort(lane, {}, &Span::end_ns);
    }

    // What `span` waited for, or null.
    const Span* cause_of(const Span& span) const {
        const Span* last = before_on_lane(span);
        for (const Edge& edge : edges_into_[span.ticket.op]) {
            const auto found = of_ticket_.find({span.ticket.period - edge.distance, edge.source});
            if (found == of_ticket_.end()) continue;
            // A result is a better reason than a lane, where both came at the same moment.
            if (last == nullptr || found->second.end_ns >= last->end_ns) last = &found->second;
        }
        return last;
    }

  private:
    size_t lane_of(const Span& span) const {
        return static_cast<size_t>(schedule_.ops[span.ticket.op].lane.kind);
    }

    // The last of the lane that ended before it began. An op that took no time is not before
    // itself, nor before another that it would be after.
    const Span* before_on_lane(const Span& span) const {
        const std::vector<Span>& lane = of_lane_[lane_of(span)];
        auto end = std::ranges::upper_bound(lane, span.start_ns, {}, &Span::end_ns);
        while (end != lane.begin()) {
            --end;
            if (end->ticket < span.ticket) return &*end;
        }
        return nullptr;
    }

    const Schedule& schedule_;
    std::vector<std::vector<Edge>> edges_into_;
    std::map<Ticket, Span> of_ticket_;
    std::array<std::vector<Span>, lane_kind_count> of_lane_;
};

}  // namespace

std::vector<Span> critical_path(const Schedule& schedule, const Timeline& timeline) {
    if (timeline.spans.empty()) return {};
    const Spans spans(schedule, timeline);
    std::vector<Span> path = {std::ranges::max(timeline.spans, {}, &Span::end_ns)};
    while (const Span* cause = spans.cause_of(path.back())) {
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
        const auto lane = static_cast<size_t>(schedule.ops[path[i].ticket.op].lane.kind);
        seconds[lane] += static_cast<double>(path[i].end_ns - start_ns) * 1e-9;
    }
    return seconds;
}

}  // namespace headrace::offload
