#include "offload/predecessors.h"

namespace headrace::offload {

Predecessors::Predecessors(const Schedule& schedule, const Timeline& timeline)
    : edges_into_(schedule.ops.size()) {
    for (const Edge& edge : schedule.edges) edges_into_[edge.target].push_back(edge);
    for (const Span& span : timeline.spans) {
        CHECK_LT(span.ticket.op, schedule.ops.size());
        spans_[span.ticket] = span;
    }
}

const Span* Predecessors::last_before(const Ticket& ticket) const {
    const Span* last = nullptr;
    for (const Edge& edge : edges_into_[ticket.op]) {
        const auto found = spans_.find({ticket.period - edge.distance, edge.source});
        if (found == spans_.end()) continue;
        if (last == nullptr || found->second.end_ns > last->end_ns) last = &found->second;
    }
    return last;
}

size_t lane_of(const Schedule& schedule, const Span& span) {
    return static_cast<size_t>(schedule.ops[span.ticket.op].lane.kind);
}

}  // namespace headrace::offload
