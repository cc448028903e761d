// Timeline: what ran when, planned or measured: the spans of some periods of a schedule. From it
// follow where the time of each lane went (at work, or waiting, and for which other lane) and a
// trace for people to look at, with the same columns for both.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "offload/run.h"

namespace headrace::offload {

struct Timeline {
    std::vector<Span> spans;  // in any order
};

// Of one lane, in seconds.
struct LaneTime {
    double busy_s = 0;  // at least one op at work
    // Between two ops of it: waiting for the op that came last of those the later one has an edge
    // from, by that op's lane. Waiting for itself: an unordered lane whose ops wait for one
    // another.
    std::array<double, lane_kind_count> waiting_s = {};
};
using LaneTimes = std::array<LaneTime, lane_kind_count>;

LaneTimes lane_times(const Schedule& schedule, const Timeline& timeline);

// The lanes of a Timeline as lines: "gpu 71% busy, 20% waiting for nvme_read, 9% for cpu", of the
// time from its first start to its last end. Lanes that never ran have none.
std::vector<std::string> describe(const Schedule& schedule, const Timeline& timeline);

// The timeline as Chrome's trace JSON, which ui.perfetto.dev opens: one track per lane, more where
// ops of one lane ran at once; an event's name is that of its op, its arguments are period and op.
std::string trace_of(const Schedule& schedule, const Timeline& timeline, std::string_view title);

}  // namespace headrace::offload
