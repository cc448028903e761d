// Goal: what is kept are the last periods of the longest list, and a step is what lies between two
// verdicts of one call of run. Method: lists of one verdict, by hand; a list of ten simulated
// steps.
#include "offload/step_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

using testing::ElementsAre;

// A compute and the verdict after it.
Schedule two_ops(uint32_t micro_batch_count = 1) {
    Schedule schedule{.workload = small_workload({.micro_batch_count = micro_batch_count})};
    schedule.ops = {{.kind = OpKind::compute, .lane = {LaneKind::gpu}, .pass = Pass::forward},
                    {.kind = OpKind::verdict, .lane = {LaneKind::cpu}}};
    schedule.edges = {{0, 1, 0}};
    return schedule;
}

// A step of period `period` that is decided then.
void add_step(StepRecorder& recorder, int64_t period, int64_t decided_ns) {
    recorder.add({{period, 0}, decided_ns - 2, decided_ns - 1});
    recorder.add({{period, 1}, decided_ns - 1, decided_ns});
}

TEST(StepRecorder, AStepLiesBetweenTwoVerdictsOfOneRun) {
    const Schedule schedule = two_ops();
    StepRecorder recorder(1);
    EXPECT_EQ(recorder.schedule(), nullptr);
    EXPECT_FALSE(recorder.median_step().has_value());
    recorder.begin(schedule);
    add_step(recorder, 0, 100);
    EXPECT_TRUE(recorder.steps().empty()) << "nothing was decided before it";
    add_step(recorder, 1, 150);
    add_step(recorder, 2, 180);
    recorder.begin(schedule);
    add_step(recorder, 0, 1000);
    add_step(recorder, 1, 1040);
    EXPECT_THAT(recorder.steps(),
                ElementsAre(Window{100, 150}, Window{150, 180}, Window{1000, 1040}));
    EXPECT_EQ(recorder.median_step(), (Window{1000, 1040}));
    EXPECT_EQ(recorder.timeline().spans.size(), 10u);
}

TEST(StepRecorder, OfManyPeriodsTheLastAreKept) {
    const Schedule schedule = two_ops();
    StepRecorder recorder(1);
    recorder.begin(schedule);
    for (int64_t period = 0; period < 100; ++period) add_step(recorder, period, 10 * period + 10);
    EXPECT_EQ(recorder.timeline().spans.size(), 2 * StepRecorder::kept_period_count);
    const std::vector<Window> steps = recorder.steps();
    EXPECT_EQ(std::ssize(steps), StepRecorder::kept_period_count - 1);
    EXPECT_EQ(steps.back(), (Window{990, 1000}));
}

TEST(StepRecorder, StepsOfTheWarmUpAreToldOfOnlyWhileThereAreNoOthers) {
    const Schedule schedule = two_ops();
    StepRecorder recorder(3);
    recorder.begin(schedule);
    add_step(recorder, 0, 10);
    add_step(recorder, 1, 15);
    recorder.begin(schedule);
    add_step(recorder, 0, 100);
    EXPECT_THAT(recorder.steps(), ElementsAre(Window{10, 15}));
    add_step(recorder, 1, 140);
    EXPECT_THAT(recorder.steps(), ElementsAre(Window{100, 140}));
    add_step(recorder, 2, 150);
    EXPECT_EQ(recorder.median_step(), (Window{100, 140})) << "the longer one of two";
}

TEST(StepRecorder, AShorterListLeavesNoTraceAndALongerOneReplacesIt) {
    const Schedule shorter = two_ops(1);
    const Schedule longer = two_ops(2);
    StepRecorder recorder(1);
    recorder.begin(shorter);
    add_step(recorder, 0, 10);
    recorder.begin(longer);
    add_step(recorder, 0, 20);
    add_step(recorder, 1, 30);
    EXPECT_EQ(recorder.schedule(), &longer);
    EXPECT_THAT(recorder.steps(), ElementsAre(Window{20, 30}));
    recorder.begin(shorter);
    add_step(recorder, 0, 40);
    add_step(recorder, 1, 50);
    EXPECT_EQ(recorder.schedule(), &longer);
    EXPECT_THAT(recorder.steps(), ElementsAre(Window{20, 30}));
}

}  // namespace
}  // namespace headrace::offload
