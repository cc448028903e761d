#include "engine/train/step_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/checkpoint/file.h"
#include "offload/demand.h"
#include "offload/numbers.h"
#include "offload/simulate.h"

namespace headrace::engine {

using offload::Effort;
using offload::LaneKind;
using offload::Machine;
using offload::OpKind;
using offload::Schedule;
using offload::Span;
using offload::Timeline;

namespace {

// Of lanes that did nothing.
constexpr double any_rate = 1e12;

// Seconds in which at least one of the spans lasts.
double seconds_of(std::vector<Span> spans) {
    std::ranges::sort(spans, {}, &Span::start_ns);
    int64_t busy_ns = 0;
    int64_t end_ns = 0;
    for (const Span& span : spans) {
        busy_ns += std::max<int64_t>(0, span.end_ns - std::max(span.start_ns, end_ns));
        end_ns = std::max(end_ns, span.end_ns);
    }
    return static_cast<double>(busy_ns) * 1e-9;
}

// On which an op takes as many seconds as it has bytes, operations or parameters.
Machine unit_machine() {
    return {.name = "one of each a second",
            .gpu_flops = 1,
            .gpu_memory_bytes_per_s = 1,
            .link = {.h2d_bytes_per_s = 1, .d2h_bytes_per_s = 1},
            .drive = {.read_bytes_per_s = 1, .write_bytes_per_s = 1, .both_ways = 2},
            .update_parameters_per_s = 1,
            .memory_bytes_per_s = 1e30,
            .core_count = 1e9,
            .update_cores = 1};
}

}  // namespace

std::vector<std::string> describe_steps(const offload::StepRecorder& recorder) {
    const auto step = recorder.median_step();
    if (!step) return {};
    std::vector<std::string> lines = {fmt::format(
        "where a step of {} went, the median of {}:", offload::format_seconds(step->seconds()),
        recorder.steps().size())};
    for (const std::string& line : describe(*recorder.schedule(), recorder.timeline(), *step)) {
        lines.push_back("  " + line);
    }
    return lines;
}

std::vector<Metric> step_metrics(const offload::StepRecorder& recorder) {
    const auto step = recorder.median_step();
    if (!step) return {};
    std::vector<Metric> metrics = {{"median_step_ms", 1e3 * step->seconds()}};
    const auto times = lane_times(*recorder.schedule(), recorder.timeline(), *step);
    for (size_t lane = 0; lane < times.size(); ++lane) {
        const std::string_view name = name_of(static_cast<LaneKind>(lane));
        if (times[lane].busy_s == 0) continue;
        metrics.push_back({fmt::format("step_busy_{}_ms", name), 1e3 * times[lane].busy_s});
        for (size_t other = 0; other < times.size(); ++other) {
            if (times[lane].waiting_s[other] == 0) continue;
            metrics.push_back({fmt::format("step_waiting_{}_for_{}_ms", name,
                                           name_of(static_cast<LaneKind>(other))),
                               1e3 * times[lane].waiting_s[other]});
        }
    }
    return metrics;
}

Machine machine_of_rates(const Schedule& schedule, const Timeline& timeline, const Effort& effort) {
    Machine machine = unit_machine();
    machine.name = "the rates measured";
    const auto units = demands_of(schedule, machine, effort);
    const auto rate_of = [&](const auto& is_of) {
        std::vector<Span> spans;
        double amount = 0;
        for (const Span& span : timeline.spans) {
            if (!is_of(schedule.ops[span.ticket.op])) continue;
            if (units[span.ticket.op].work_s <= 0) continue;
            spans.push_back(span);
            amount += units[span.ticket.op].work_s;
        }
        const double busy_s = seconds_of(std::move(spans));
        return amount > 0 && busy_s > 0 ? amount / busy_s : any_rate;
    };
    const auto on = [&](LaneKind kind) {
        return rate_of([&](const offload::Op& op) { return op.lane.kind == kind; });
    };
    const auto of = [&](OpKind kind) {
        return rate_of([&](const offload::Op& op) { return op.kind == kind; });
    };
    machine.gpu_flops = of(OpKind::compute);
    machine.gpu_memory_bytes_per_s = of(OpKind::reduce);
    machine.link = {.h2d_bytes_per_s = on(LaneKind::h2d), .d2h_bytes_per_s = on(LaneKind::d2h)};
    machine.drive.read_bytes_per_s = on(LaneKind::nvme_read);
    machine.drive.write_bytes_per_s = on(LaneKind::nvme_write);
    machine.update_parameters_per_s = of(OpKind::update);
    return machine;
}

namespace {

offload::Status save_trace(const WantedTrace& wanted) {
    const Schedule* schedule = wanted.recorder.schedule();
    if (schedule == nullptr) return {};
    std::vector<offload::TracedRun> runs(2);
    runs[1] = {
        .title = wanted.emulated.empty() ? "measured" : "measured, EMULATED " + wanted.emulated,
        .schedule = schedule,
        .timeline = wanted.recorder.timeline()};
    const Machine machine = wanted.machine
                                ? *wanted.machine
                                : machine_of_rates(*schedule, runs[1].timeline, wanted.effort);
    runs[0] = {.title = "planned: " + machine.name, .schedule = schedule, .timeline = {}};
    simulate(*schedule, machine, wanted.effort,
             {.on_span = [&](const Span& span) { runs[0].timeline.spans.push_back(span); }});
    const offload::Status written = save_text(wanted.path, trace_of(runs));
    return written ? written : wrap(written.error(), "the trace");
}

}  // namespace

void write_trace(const WantedTrace& wanted, const Say& note, const Say& warn) {
    CHECK(note && warn);
    if (wanted.path.empty()) return;
    const offload::Status written = save_trace(wanted);
    if (!written) return warn(written.error().text());
    note(fmt::format("trace: {}, for ui.perfetto.dev", wanted.path));
}

}  // namespace headrace::engine
