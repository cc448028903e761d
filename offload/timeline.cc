#include "offload/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/predecessors.h"

namespace headrace::offload {

namespace {

constexpr double s_of(int64_t time_ns) {
    return static_cast<double>(time_ns) * 1e-9;
}

std::array<std::vector<Span>, lane_kind_count> by_lane(const Schedule& schedule,
                                                       const Timeline& timeline) {
    std::array<std::vector<Span>, lane_kind_count> lanes;
    for (const Span& span : timeline.spans) {
        CHECK_LT(span.ticket.op, schedule.ops.size());
        CHECK_LE(span.start_ns, span.end_ns);
        lanes[lane_of(schedule, span)].push_back(span);
    }
    for (std::vector<Span>& spans : lanes) std::ranges::sort(spans, {}, &Span::start_ns);
    return lanes;
}

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        if (c == '"' || c == '\\') safe += '\\';
        safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return safe;
}

// A metadata event names a process or a track of it.
void append_name(std::string_view what, int process, int track, std::string_view name,
                 std::string& events) {
    if (!events.empty()) events += ",\n";
    events += fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                          what, process, track, escaped(name));
}

void append_process(const TracedRun& run, int process, std::string& events) {
    const auto lanes = by_lane(*run.schedule, run.timeline);
    const int64_t begin_ns = whole(run.timeline).begin_ns;
    append_name("process_name", process, 0, run.title, events);
    int track = 0;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
        std::vector<int64_t> track_ends_ns;  // of this lane's tracks: the last span's end
        for (const Span& span : lanes[lane]) {
            auto free = std::ranges::find_if(
                track_ends_ns, [&](int64_t end_ns) { return end_ns <= span.start_ns; });
            if (free == track_ends_ns.end()) free = track_ends_ns.insert(free, 0);
            *free = span.end_ns;
            events += fmt::format(
                ",\n"
                R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                R"("args":{{"period":{},"op":{}}}}})",
                escaped(describe(*run.schedule, run.schedule->ops[span.ticket.op])), process,
                track + static_cast<int>(free - track_ends_ns.begin()),
                static_cast<double>(span.start_ns - begin_ns) * 1e-3,
                static_cast<double>(span.end_ns - span.start_ns) * 1e-3, span.ticket.period,
                span.ticket.op);
        }
        for (size_t i = 0; i < track_ends_ns.size(); ++i, ++track) {
            append_name("thread_name", process, track, name_of(static_cast<LaneKind>(lane)),
                        events);
        }
    }
}

}  // namespace

Window whole(const Timeline& timeline) {
    if (timeline.spans.empty()) return {};
    return {.begin_ns = std::ranges::min(timeline.spans, {}, &Span::start_ns).start_ns,
            .end_ns = std::ranges::max(timeline.spans, {}, &Span::end_ns).end_ns};
}

LaneTimes lane_times(const Schedule& schedule, const Timeline& timeline, const Window& window) {
    CHECK_LE(window.begin_ns, window.end_ns);
    const auto lanes = by_lane(schedule, timeline);
    const Predecessors predecessors(schedule, timeline);
    const auto seconds_within = [&](int64_t begin_ns, int64_t end_ns) {
        return s_of(std::max<int64_t>(
            0, std::min(end_ns, window.end_ns) - std::max(begin_ns, window.begin_ns)));
    };
    LaneTimes times;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
        const std::vector<Span>& spans = lanes[lane];
        if (spans.empty()) continue;
        int64_t end_ns = spans.front().start_ns;
        for (const Span& span : spans) {
            if (const double gap_s = seconds_within(end_ns, span.start_ns); gap_s > 0) {
                const Span* cause = predecessors.last_before(span.ticket);
                const size_t other = cause == nullptr ? lane : lane_of(schedule, *cause);
                times[lane].waiting_s[other] += gap_s;
            }
            times[lane].busy_s += seconds_within(std::max(span.start_ns, end_ns), span.end_ns);
            end_ns = std::max(end_ns, span.end_ns);
        }
    }
    return times;
}

std::vector<std::string> describe(const Schedule& schedule, const Timeline& timeline,
                                  const Window& window) {
    const double whole_s = std::max(window.seconds(), 1e-9);
    const LaneTimes times = lane_times(schedule, timeline, window);
    std::vector<std::string> lines;
    for (size_t lane = 0; lane < times.size(); ++lane) {
        const LaneTime& time = times[lane];
        if (time.busy_s == 0) continue;
        std::string line = fmt::format("{:<10} {:5.1f}% busy", name_of(static_cast<LaneKind>(lane)),
                                       100 * time.busy_s / whole_s);
        for (size_t other = 0; other < times.size(); ++other) {
            const double share = time.waiting_s[other] / whole_s;
            if (share < 0.005) continue;
            line += fmt::format(", {:.1f}% waiting for {}", 100 * share,
                                name_of(static_cast<LaneKind>(other)));
        }
        lines.push_back(std::move(line));
    }
    return lines;
}

std::string trace_of(std::span<const TracedRun> runs) {
    std::string events;
    for (size_t i = 0; i < runs.size(); ++i) {
        CHECK(runs[i].schedule != nullptr);
        append_process(runs[i], static_cast<int>(i) + 1, events);
    }
    return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", events);
}

}  // namespace headrace::offload
