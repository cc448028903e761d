// The critical path of a timeline: the chain of ops that made its end as late as it was. Each op of
// it waited for the one before: for its result (an edge), or for the lane that was taken.
#pragma once

#include <array>
#include <vector>

#include "offload/timeline.h"

namespace headrace::offload {

// From the first to the last op. An op waited for the one that ended last of those it has edges
// from and those of its lane that ended before it began. Empty for an empty timeline.
std::vector<Span> critical_path(const Schedule& schedule, const Timeline& timeline);

// The seconds of the path by lane: each op counts from the end of the one before.
std::array<double, lane_kind_count> path_seconds(const Schedule& schedule,
                                                 const std::vector<Span>& path);

}  // namespace headrace::offload
