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

// From when to when one looks.
struct Window {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    double seconds() const { return static_cast<double>(end_ns - begin_ns) * 1e-9; }
    bool operator==(const Window&) const = default;
};

// From the first start to the last end; of nothing, nothing.
Window whole(const Timeline& timeline);

// Of one lane, in seconds.
struct LaneTime {
    double busy_s = 0;  // at least one op at work
    // Between two ops of it: waiting for the op that came last of those the later one has an edge
    // from, by that op's lane. Waiting for itself: an unordered lane whose ops wait for one
    // another.
    std::array<double, lane_kind_count> waiting_s = {};
};
using LaneTimes = std::array<LaneTime, lane_kind_count>;

// What falls into the window. Ops and waits that began before it or end after it count in part, so
// a window within a longer timeline loses nothing at its ends.
LaneTimes lane_times(const Schedule& schedule, const Timeline& timeline, const Window& window);

// The lanes as lines, in shares of the window: "gpu 71.0% busy, 20.0% waiting for nvme_read". Lanes
// that did not run in it have none.
std::vector<std::string> describe(const Schedule& schedule, const Timeline& timeline,
                                  const Window& window);

// One process of a trace: a run of a list, planned or measured. Its clock begins at 0.
struct TracedRun {
    std::string title;
    const Schedule* schedule = nullptr;
    Timeline timeline;
};

// Chrome's trace JSON, which ui.perfetto.dev opens: a process per run, in it one track per lane,
// more where ops of one lane ran at once; an event's name is that of its op, its arguments are
// period and op.
std::string trace_of(std::span<const TracedRun> runs);

}  // namespace headrace::offload
