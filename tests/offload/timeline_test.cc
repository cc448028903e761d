// Goal: waiting is laid at the right lane's door, and a trace is JSON with every span on a track of
// its own lane. Method: a list of three ops by hand; a simulated step.
#include "offload/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/build.h"
#include "offload/simulate.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto read_lane = static_cast<size_t>(LaneKind::nvme_read);
constexpr auto gpu_lane = static_cast<size_t>(LaneKind::gpu);
constexpr auto cpu_lane = static_cast<size_t>(LaneKind::cpu);

// A read, an update and a compute that waits for both; and once more in the next period.
Schedule three_ops() {
    Schedule schedule{.workload = small_workload({})};
    schedule.ops.resize(3);
    schedule.ops[0].lane.kind = LaneKind::nvme_read;
    schedule.ops[1] = {.kind = OpKind::update, .lane = {LaneKind::cpu}};
    schedule.ops[2] = {.kind = OpKind::compute, .lane = {LaneKind::gpu}, .pass = Pass::forward};
    schedule.edges = {{0, 2, 0}, {1, 2, 0}, {2, 0, 1}};
    return schedule;
}

TEST(Timeline, WaitingIsForTheLastThatAnOpWaitedFor) {
    const Schedule schedule = three_ops();
    const Timeline timeline{.spans = {{{0, 0}, 0, 10},
                                      {{0, 1}, 0, 20},
                                      {{0, 2}, 20, 30},
                                      {{1, 0}, 30, 70},
                                      {{1, 1}, 20, 40},
                                      {{1, 2}, 70, 80}}};
    const LaneTimes times = lane_times(schedule, timeline, whole(timeline));
    EXPECT_DOUBLE_EQ(times[gpu_lane].busy_s, 20e-9);
    EXPECT_DOUBLE_EQ(times[gpu_lane].waiting_s[read_lane], 40e-9);
    EXPECT_DOUBLE_EQ(times[gpu_lane].waiting_s[cpu_lane], 0);
    EXPECT_DOUBLE_EQ(times[read_lane].waiting_s[gpu_lane], 20e-9);
    EXPECT_DOUBLE_EQ(times[cpu_lane].busy_s, 40e-9);
    EXPECT_THAT(describe(schedule, timeline, whole(timeline)),
                ElementsAre("nvme_read   62.5% busy, 25.0% waiting for gpu",
                            "gpu         25.0% busy, 50.0% waiting for nvme_read",
                            "cpu         50.0% busy"));
}

// A window takes its part of what reaches over its ends: of the second read's wait for the compute
// (from 10 to 30), and of the read itself (from 30 to 70).
TEST(Timeline, AWindowTakesItsPartOfWhatReachesOverItsEnds) {
    const Schedule schedule = three_ops();
    const Timeline timeline{.spans = {{{0, 0}, 0, 10},
                                      {{0, 1}, 0, 20},
                                      {{0, 2}, 20, 30},
                                      {{1, 0}, 30, 70},
                                      {{1, 2}, 70, 80}}};
    const LaneTimes times = lane_times(schedule, timeline, {.begin_ns = 25, .end_ns = 60});
    EXPECT_DOUBLE_EQ(times[read_lane].busy_s, 30e-9);
    EXPECT_DOUBLE_EQ(times[read_lane].waiting_s[gpu_lane], 5e-9);
    EXPECT_DOUBLE_EQ(times[gpu_lane].busy_s, 5e-9);
    EXPECT_DOUBLE_EQ(times[gpu_lane].waiting_s[read_lane], 30e-9);
    EXPECT_DOUBLE_EQ(times[cpu_lane].busy_s, 0);
    EXPECT_EQ(whole(timeline), (Window{0, 80}));
    EXPECT_EQ(whole({}), (Window{0, 0}));
}

TEST(Timeline, ATraceHasATrackForEveryOpThatRunsBesideAnother) {
    const Schedule schedule = three_ops();
    const std::vector<TracedRun> runs = {
        {.title = "a \"title\"",
         .schedule = &schedule,
         .timeline = {.spans = {{{0, 0}, 0, 1000}, {{1, 0}, 500, 2000}, {{0, 2}, 0, 1}}}},
        {.title = "later", .schedule = &schedule, .timeline = {.spans = {{{7, 2}, 9000, 9500}}}}};
    const std::string trace = trace_of(runs);
    EXPECT_THAT(trace, HasSubstr(R"("pid":2,"tid":0,"ts":0.000,"dur":0.500,"args":{"period":7)"))
        << "each process begins at 0";
    EXPECT_THAT(trace, HasSubstr(R"("name":"a \"title\"")"));
    EXPECT_THAT(trace, HasSubstr(R"("tid":0,"ts":0.000,"dur":1.000,"args":{"period":0,"op":0})"));
    EXPECT_THAT(trace, HasSubstr(R"("tid":1,"ts":0.500,"dur":1.500,"args":{"period":1,"op":0})"));
    EXPECT_THAT(trace, HasSubstr(R"("tid":2,"ts":0.000)"));
    EXPECT_THAT(trace, HasSubstr(R"("tid":2,"args":{"name":"gpu"})"));
}

// Of a simulated step no second is lost: what a lane waits and works is all there is between its
// first and its last op.
TEST(Timeline, BusyAndWaitingAddUp) {
    Workload workload = small_workload({.block_count = 3, .micro_batch_count = 2});
    Plan plan = uniform_plan(workload, {}, Tier::ram);
    plan.group = 2;
    const Schedule schedule = build(workload, plan).value();
    const Machine machine{.name = "m",
                          .gpu_flops = 1e12,
                          .gpu_memory_bytes_per_s = 1e12,
                          .link = {.h2d_bytes_per_s = 1e9, .d2h_bytes_per_s = 1e9},
                          .drive = {.read_bytes_per_s = 2e8, .write_bytes_per_s = 1e8},
                          .update_parameters_per_s = 1e9,
                          .memory_bytes_per_s = 1e10,
                          .core_count = 4,
                          .update_cores = 2};
    Effort effort;
    effort.layers.assign(layer_count(workload), {.forward_flop = 1e7, .backward_flop = 2e7});
    Timeline timeline;
    simulate(schedule, machine, effort,
             {.on_span = [&](const Span& span) { timeline.spans.push_back(span); }});
    const LaneTimes times = lane_times(schedule, timeline, whole(timeline));
    for (size_t lane = 0; lane < times.size(); ++lane) {
        int64_t first_ns = INT64_MAX;
        int64_t last_ns = 0;
        for (const Span& span : timeline.spans) {
            if (static_cast<size_t>(schedule.ops[span.ticket.op].lane.kind) != lane) continue;
            first_ns = std::min(first_ns, span.start_ns);
            last_ns = std::max(last_ns, span.end_ns);
        }
        if (last_ns == 0) continue;
        double sum_s = times[lane].busy_s;
        for (const double waiting_s : times[lane].waiting_s) sum_s += waiting_s;
        EXPECT_NEAR(sum_s, static_cast<double>(last_ns - first_ns) * 1e-9, 1e-9);
    }
}

}  // namespace
}  // namespace headrace::offload
