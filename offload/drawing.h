// A drawing of a step for people: one HTML file without anything beside it, lanes as rows, ops as
// boxes, the critical path as a line through them.
#pragma once

#include <string>
#include <vector>

#include "offload/timeline.h"

namespace headrace::offload {

struct Drawing {
    std::string title;
    std::vector<std::string> lines = {};  // above the picture, as they are
    // What of the timeline is drawn; ops are cut at its borders. begin_ns < end_ns (CHECK).
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
};

// Neighbours of a lane that are of one sort and narrower than a pixel become one box.
std::string html_of(const Schedule& schedule, const Timeline& timeline, const Drawing& drawing);

}  // namespace headrace::offload
