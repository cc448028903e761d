// Predecessors: of a timeline's ops, which one each had an edge from that ended last: what it
// waited for. For whoever explains where time went (timeline.h, critical_path.h).
#pragma once

#include <map>
#include <vector>

#include "offload/timeline.h"

namespace headrace::offload {

class Predecessors {
  public:
    // CHECKs that the timeline is of the schedule.
    Predecessors(const Schedule& schedule, const Timeline& timeline);

    // The last to end of those with an edge to the op; null if none of them is in the timeline.
    // Lives as long as this object.
    const Span* last_before(const Ticket& ticket) const;

  private:
    std::vector<std::vector<Edge>> edges_into_;
    std::map<Ticket, Span> spans_;
};

// The lane that the op of a span is on.
size_t lane_of(const Schedule& schedule, const Span& span);

}  // namespace headrace::offload
