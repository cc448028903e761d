// Goal: the critical path is the chain that made a step as long as it was, and the drawing shows
// every lane, op and word. Method: a list of three ops by hand; a simulated step of a machine whose
// drive is the only thing that takes time.
#include "offload/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/build.h"
#include "offload/critical_path.h"
#include "offload/simulate.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

using testing::ElementsAre;

// A read and an update; a compute that waits for both; and once more in the next period.
Schedule three_ops() {
    Schedule schedule{.workload = small_workload({})};
    schedule.ops.resize(3);
    schedule.ops[0] = {.kind = OpKind::fetch, .lane = {LaneKind::nvme_read}};
    schedule.ops[0].accesses = {{0, {.kind = Kind::opt}, Mode::read}, {1, {}, Mode::write}};
    schedule.ops[1] = {.kind = OpKind::update, .lane = {LaneKind::cpu}};
    schedule.ops[2] = {.kind = OpKind::compute, .lane = {LaneKind::gpu}, .pass = Pass::forward};
    schedule.slots.resize(2);
    schedule.edges = {{0, 2, 0}, {1, 2, 0}, {2, 0, 1}};
    return schedule;
}

std::vector<Ticket> tickets_of(const std::vector<Span>& path) {
    std::vector<Ticket> tickets;
    for (const Span& span : path) tickets.push_back(span.ticket);
    return tickets;
}

TEST(CriticalPath, GoesThroughWhatEachOpWaitedFor) {
    const Schedule schedule = three_ops();
    const Timeline timeline{.spans = {{{0, 0}, 0, 10},
                                      {{0, 1}, 0, 20},
                                      {{0, 2}, 20, 30},
                                      {{1, 0}, 31, 70},
                                      {{1, 1}, 20, 40},
                                      {{1, 2}, 70, 80}}};
    const std::vector<Span> path = critical_path(schedule, timeline);
    EXPECT_THAT(tickets_of(path),
                ElementsAre(Ticket{0, 1}, Ticket{0, 2}, Ticket{1, 0}, Ticket{1, 2}));
    const auto seconds = path_seconds(schedule, path);
    EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(LaneKind::cpu)], 20e-9);
    EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(LaneKind::gpu)], 20e-9);
    EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(LaneKind::nvme_read)], 40e-9);
    EXPECT_TRUE(critical_path(schedule, {}).empty());
}

// An op whose results came early waited for its lane.
TEST(CriticalPath, GoesAlongALaneThatWasTaken) {
    Schedule schedule = three_ops();
    schedule.edges = {};
    const Timeline timeline{.spans = {{{0, 2}, 0, 10}, {{1, 2}, 10, 30}, {{2, 2}, 31, 40}}};
    EXPECT_THAT(tickets_of(critical_path(schedule, timeline)),
                ElementsAre(Ticket{0, 2}, Ticket{1, 2}, Ticket{2, 2}));
}

struct Simulated {
    Schedule schedule;
    Timeline timeline;
    Forecast forecast;
};

// `slow` bytes per second of the drive; all else is a thousand times faster.
Simulated simulated_step() {
    Workload workload = small_workload({.block_count = 3, .micro_batch_count = 2});
    Plan plan = uniform_plan(workload, {}, Tier::ram);
    plan.group = 2;
    Simulated made{.schedule = build(workload, plan).value(), .timeline = {}, .forecast = {}};
    const Machine machine{.name = "m",
                          .gpu_flops = 1e15,
                          .gpu_memory_bytes_per_s = 1e15,
                          .link = {.h2d_bytes_per_s = 1e12, .d2h_bytes_per_s = 1e12},
                          .drive = {.read_bytes_per_s = 1e6, .write_bytes_per_s = 1e6},
                          .update_parameters_per_s = 1e12,
                          .memory_bytes_per_s = 1e13,
                          .core_count = 4,
                          .update_cores = 2};
    Effort effort;
    effort.layers.assign(layer_count(workload), {.forward_flop = 1e7, .backward_flop = 2e7});
    made.forecast =
        simulate(made.schedule, machine, effort,
                 {.on_span = [&](const Span& span) { made.timeline.spans.push_back(span); }});
    return made;
}

TEST(CriticalPath, OfAMachineWithASlowDriveIsTheDrive) {
    const Simulated made = simulated_step();
    const std::vector<Span> path = critical_path(made.schedule, made.timeline);
    const auto seconds = path_seconds(made.schedule, path);
    double whole_s = 0;
    for (const double lane_s : seconds) whole_s += lane_s;
    const double drive_s = seconds[static_cast<size_t>(LaneKind::nvme_read)] +
                           seconds[static_cast<size_t>(LaneKind::nvme_write)];
    EXPECT_GT(drive_s, 0.99 * whole_s);
    for (size_t i = 1; i < path.size(); ++i) EXPECT_LE(path[i - 1].end_ns, path[i].start_ns);
}

bool has(const std::string& html, std::string_view words) {
    return html.find(words) != std::string::npos;
}

size_t count_of(const std::string& html, std::string_view words) {
    size_t count = 0;
    for (size_t at = html.find(words); at != std::string::npos; at = html.find(words, at + 1)) {
        ++count;
    }
    return count;
}

TEST(Drawing, HasARowForEveryLaneAndABoxForEveryOp) {
    const Schedule schedule = three_ops();
    const Timeline timeline{.spans = {{{0, 0}, 0, 1000}, {{0, 1}, 0, 2000}, {{0, 2}, 2000, 3000}}};
    const std::string html =
        html_of(schedule, timeline,
                {.title = "a <step>", .lines = {"gpu 1 & 2"}, .begin_ns = 0, .end_ns = 3000});
    for (const std::string_view words :
         {"<h1>a &lt;step&gt;</h1>", "gpu 1 &amp; 2", ">nvme_read</text>", ">cpu</text>",
          ">gpu</text>", "update hi of part 0, 2.00 us", "forward layer 0", ">states<",
          "critical path: cpu 2.00 us, gpu 1.00 us"}) {
        EXPECT_TRUE(has(html, words)) << words;
    }
    EXPECT_FALSE(has(html, ">d2h</text>"));
    EXPECT_EQ(count_of(html, "<rect"), 3u);
}

// Of ten thousand ops about a thousand boxes are left, nine ops each; what lies outside is cut.
TEST(Drawing, JoinsWhatAPixelCannotHold) {
    const Schedule schedule = three_ops();
    Timeline timeline;
    for (int64_t i = 0; i < 10'000; ++i) timeline.spans.push_back({{i, 1}, i * 10, i * 10 + 10});
    const std::string whole =
        html_of(schedule, timeline, {.title = "t", .begin_ns = 0, .end_ns = 100'000});
    EXPECT_TRUE(has(whole, " and 8 more"));
    EXPECT_FALSE(has(whole, " more and "));
    EXPECT_NEAR(static_cast<double>(count_of(whole, "<rect")), 1111, 2);
    EXPECT_LT(whole.size(), 300'000u);
    const std::string part =
        html_of(schedule, timeline, {.title = "t", .begin_ns = 50'005, .end_ns = 50'095});
    EXPECT_EQ(count_of(part, "<rect"), 10u);
}

}  // namespace
}  // namespace headrace::offload
