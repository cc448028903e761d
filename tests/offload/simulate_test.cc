// Goal: the simulated backend tells time as its header says, and simulate finds what bounds a step.
// Method: shares worked out by hand; small and 13B-shaped lists on machines whose rates make one
// lane the bound; the rules that hold for every machine (never below a lane's own work, the same
// twice); faulty machines.
#include "offload/simulate.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "offload/build.h"
#include "offload/simulated.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

constexpr double gb = 1e9;

// A card whose parts are all far faster than needed; tests slow one of them down.
Machine swift_machine() {
    return {.name = "swift",
            .gpu_flops = 1e18,
            .gpu_memory_bytes_per_s = 1e18,
            .link = {.h2d_bytes_per_s = 1e15, .d2h_bytes_per_s = 1e15},
            .drive = {.read_bytes_per_s = 1e15, .write_bytes_per_s = 1e15},
            .update_parameters_per_s = 1e15,
            .memory_bytes_per_s = 1e18,
            .core_count = 16,
            .update_cores = 8};
}

Effort effort_of(const Workload& workload, double flop) {
    Effort effort;
    effort.layers.assign(layer_count(workload),
                         {.forward_flop = flop, .recompute_flop = flop, .backward_flop = 2 * flop});
    effort.layers.front() = {};
    effort.loss_flop = flop;
    return effort;
}

Schedule list_of(const Workload& workload, PartHomes homes, uint32_t group,
                 Tier activations = Tier::ram) {
    Plan plan = uniform_plan(workload, homes, activations);
    plan.group = group;
    plan.path_count = 1;
    return build(workload, plan).value();
}

constexpr PartHomes on_nvme{};

const Workload& blocks() {
    static const Workload workload = small_workload(
        {.block_count = 24, .parts_per_layer = 2, .tied = false, .micro_batch_count = 2});
    return workload;
}

size_t index_of(LaneKind kind) {
    return static_cast<size_t>(kind);
}

std::array<const Demand*, lane_kind_count> running(const Demand* read, const Demand* write,
                                                   const Demand* cpu) {
    std::array<const Demand*, lane_kind_count> lanes = {};
    lanes[index_of(LaneKind::nvme_read)] = read;
    lanes[index_of(LaneKind::nvme_write)] = write;
    lanes[index_of(LaneKind::cpu)] = cpu;
    return lanes;
}

TEST(FairSpeeds, AloneAndTogether) {
    const Demand turns{.work_s = 1, .shares = {0, 1, 0.25, 0}};
    const Demand update{.work_s = 1, .shares = {0, 0, 0.75, 0.5}};
    Speeds speeds = fair_speeds(running(&turns, nullptr, nullptr));
    EXPECT_DOUBLE_EQ(speeds[index_of(LaneKind::nvme_read)], 1);
    EXPECT_DOUBLE_EQ(speeds[index_of(LaneKind::nvme_write)], 0);
    // A drive that takes turns: half each. The update finds 0.75 of memory left, and that is all
    // it wants.
    speeds = fair_speeds(running(&turns, &turns, &update));
    EXPECT_DOUBLE_EQ(speeds[index_of(LaneKind::nvme_read)], 0.5);
    EXPECT_DOUBLE_EQ(speeds[index_of(LaneKind::nvme_write)], 0.5);
    EXPECT_DOUBLE_EQ(speeds[index_of(LaneKind::cpu)], 1);
    // With memory short all three go at 0.5 when the drive is full; the update takes what is left.
    const Demand heavy{.work_s = 1, .shares = {0, 0, 1, 0.5}};
    speeds = fair_speeds(running(&turns, &turns, &heavy));
    EXPECT_DOUBLE_EQ(speeds[index_of(LaneKind::nvme_read)], 0.5);
    EXPECT_DOUBLE_EQ(speeds[index_of(LaneKind::cpu)], 0.75);
}

TEST(Simulate, TheSlowestLaneIsTheStep) {
    const Schedule list = list_of(blocks(), on_nvme, 2);
    const double parameters = static_cast<double>(blocks().layout.parts.size() * block_elements);
    const Effort effort = effort_of(blocks(), 1e9);
    struct Case {
        LaneKind lane;
        std::function<void(Machine&)> slow;
    };
    const Case cases[] = {
        {LaneKind::gpu, [](Machine& m) { m.gpu_flops = 1e12; }},
        {LaneKind::h2d, [](Machine& m) { m.link.h2d_bytes_per_s = 1e6; }},
        {LaneKind::d2h, [](Machine& m) { m.link.d2h_bytes_per_s = 1e6; }},
        {LaneKind::cpu, [](Machine& m) { m.update_parameters_per_s = 1e6; }},
    };
    for (const Case& one : cases) {
        Machine machine = swift_machine();
        one.slow(machine);
        const Forecast forecast = simulate(list, machine, effort);
        EXPECT_NEAR(forecast.step_s / forecast.alone_s[index_of(one.lane)], 1, 0.02)
            << name_of(one.lane);
        EXPECT_NEAR(forecast.busy_s[index_of(one.lane)], forecast.step_s, 0.02 * forecast.step_s);
    }
    // A drive in turns is the step when reading and writing add up.
    Machine machine = swift_machine();
    machine.drive.read_bytes_per_s = 2e6;
    machine.drive.write_bytes_per_s = 1e6;
    const Forecast forecast = simulate(list, machine, effort);
    const double both_s = forecast.alone_s[index_of(LaneKind::nvme_read)] +
                          forecast.alone_s[index_of(LaneKind::nvme_write)];
    EXPECT_GE(forecast.step_s, 0.999 * both_s);
    EXPECT_LE(forecast.step_s, 1.05 * both_s);
    // 2 B of hi twice, 10 of the rest and 2 of the stash read: 16 of them a parameter.
    EXPECT_NEAR(forecast.alone_s[index_of(LaneKind::nvme_read)], 16 * parameters / 2e6,
                0.1 * forecast.step_s);
}

// Every visit to a layer computes as long as the copy of its weights takes.
TEST(Simulate, speed_copies_and_compute_of_equal_length_overlap) {
    const Workload workload = small_workload(
        {.block_count = 48, .parts_per_layer = 2, .tied = false, .micro_batch_count = 2});
    const Schedule list =
        list_of(workload, {.hi = Tier::ram, .opt = Tier::ram, .stash = Tier::ram}, 2, Tier::gpu);
    Machine machine = swift_machine();
    machine.link.h2d_bytes_per_s = gb;
    Effort effort = effort_of(workload, 1e9);
    for (LayerEffort& layer : effort.layers) layer = {.forward_flop = 1e9, .backward_flop = 1e9};
    const Forecast copying = simulate(list, machine, effort);
    const double copies_s = copying.alone_s[index_of(LaneKind::h2d)];
    machine.gpu_flops *= copying.alone_s[index_of(LaneKind::gpu)] / copies_s;
    const Forecast both = simulate(list, machine, effort);
    EXPECT_NEAR(both.alone_s[index_of(LaneKind::gpu)], copies_s, 0.01 * copies_s);
    EXPECT_LE(both.step_s, 1.1 * copies_s);
}

TEST(Simulate, NeverFasterThanAnyLaneAndTheSameTwice) {
    for (const double drive_gb : {0.5, 4.0}) {
        for (const double flops : {1e12, 1e14}) {
            Machine machine = swift_machine();
            machine.gpu_flops = flops;
            machine.drive.read_bytes_per_s = drive_gb * gb;
            machine.drive.write_bytes_per_s = drive_gb * gb / 2;
            machine.drive.latency_s = 1e-4;
            machine.drive.flush_s = 1e-3;
            machine.memory_bytes_per_s = 20 * gb;
            machine.update_parameters_per_s = gb;
            machine.compute_cores = machine.copy_cores = 8;
            const Schedule list = list_of(blocks(), on_nvme, 1);
            const Forecast forecast = simulate(list, machine, effort_of(blocks(), 1e9));
            for (const double alone_s : forecast.alone_s) {
                EXPECT_GE(forecast.step_s, 0.999 * alone_s);
            }
            const Forecast again = simulate(list, machine, effort_of(blocks(), 1e9));
            EXPECT_EQ(forecast.step_s, again.step_s);
            EXPECT_EQ(forecast.busy_s, again.busy_s);
        }
    }
}

TEST(Simulate, ASkippedStepWritesNoStates) {
    Machine machine = swift_machine();
    machine.drive.read_bytes_per_s = 4 * gb;
    machine.drive.write_bytes_per_s = gb;
    const Schedule list = list_of(blocks(), on_nvme, 2);
    const Effort effort = effort_of(blocks(), 1e3);
    const Forecast applied = simulate(list, machine, effort);
    const Forecast skipped = simulate(list, machine, effort, {.verdict = Verdict::skip});
    EXPECT_LT(skipped.step_s, 0.7 * applied.step_s);
}

// With on_span a simulation goes on to its end, without it ends with the step that it tells of.
TEST(Simulate, EndingEarlyChangesNothingThatIsTold) {
    Machine machine = swift_machine();
    machine.drive.read_bytes_per_s = 4 * gb;
    machine.drive.write_bytes_per_s = gb;
    const Schedule list = list_of(blocks(), on_nvme, 2);
    const Effort effort = effort_of(blocks(), 1e6);
    size_t span_count = 0;
    const Forecast whole =
        simulate(list, machine, effort, {.on_span = [&](const Span&) { ++span_count; }});
    EXPECT_GT(span_count, 3 * list.ops.size());
    const Forecast early = simulate(list, machine, effort);
    EXPECT_EQ(early.step_s, whole.step_s);
    EXPECT_EQ(early.busy_s, whole.busy_s);
    EXPECT_EQ(early.moved_bytes[index_of(LaneKind::nvme_write)],
              moved_bytes(list, LaneKind::nvme_write));
    // What is of no interest ends as soon as that is known.
    const Forecast dull = simulate(list, machine, effort, {.worth_s = whole.step_s / 2});
    EXPECT_GE(dull.step_s, whole.step_s / 2);
    EXPECT_LT(dull.step_s, whole.step_s);
    EXPECT_EQ(simulate(list, machine, effort, {.worth_s = 2 * whole.step_s}).step_s, whole.step_s);
}

// 8 units of arithmetic a block and micro-batch, 2 of them to compute forward again.
TEST(Simulate, WhatIsKeptIsNotComputedAgain) {
    Workload workload = small_workload({.block_count = 4, .micro_batch_count = 2});
    workload.kept_bytes = page_bytes;
    Effort effort;
    effort.layers.assign(layer_count(workload), {});
    for (uint32_t layer = 1; layer < head_layer(workload); ++layer) {
        effort.layers[layer] = {.forward_flop = 2, .recompute_flop = 2, .backward_flop = 4};
    }
    Machine machine = swift_machine();
    machine.gpu_flops = 1;
    Plan plan = uniform_plan(workload, {Tier::gpu, Tier::ram, Tier::ram, Tier::ram}, Tier::gpu);
    plan.group = 2;
    const auto gpu_s = [&] {
        const Schedule list = build(workload, plan).value();
        return simulate(list, machine, effort).alone_s[index_of(LaneKind::gpu)];
    };
    EXPECT_NEAR(gpu_s(), 2 * 4 * 8, 1e-6);
    plan.kept_homes.assign(layer_count(workload), std::nullopt);
    plan.kept_homes[1] = plan.kept_homes[2] = plan.kept_homes[3] = Tier::gpu;
    EXPECT_NEAR(gpu_s(), 2 * (3 * 6 + 8), 1e-6);
}

// Where forward is short and the drive is what binds, updates in backward keep it busy.
TEST(Simulate, UpdatingTwiceKeepsTheDriveBusy) {
    const Effort effort = effort_of(blocks(), 1e9);
    Machine machine = swift_machine();
    machine.drive.read_bytes_per_s = 14e6;
    machine.drive.write_bytes_per_s = 6e6;
    machine.gpu_flops = 7e11;  // about as long as the drive
    Plan plan = uniform_plan(blocks(), on_nvme, Tier::ram);
    plan.group = 2;
    plan.path_count = 1;
    const auto forecast = [&] { return simulate(build(blocks(), plan).value(), machine, effort); };
    const double gated_s = forecast().step_s;
    for (uint32_t part = 0; part < plan.homes.size(); ++part) {
        plan.twice.push_back(part % 2 == 0 && can_update_twice(blocks(), part));
    }
    const Forecast twice = forecast();
    const double drive_s = twice.alone_s[index_of(LaneKind::nvme_read)] +
                           twice.alone_s[index_of(LaneKind::nvme_write)];
    EXPECT_LT(twice.step_s, 0.95 * gated_s);
    EXPECT_LT(twice.step_s, 1.15 * drive_s);
}

TEST(Simulate, AClockThatCountsHoursComesToAnEnd) {
    // After hours the rounding of the clock is more than an instant, after years more than an op.
    const Schedule list = list_of(blocks(), on_nvme, 2);
    const Effort effort = effort_of(blocks(), 1e12);
    for (const double flops : {1e10, 1e9, 1e6}) {
        SCOPED_TRACE(flops);
        Machine machine = swift_machine();
        machine.gpu_flops = flops;
        machine.launch_s = 5e-6;
        machine.drive.latency_s = 1e-4;
        machine.drive.burst_bytes_per_s = 4e15;
        machine.drive.burst_bytes = 1e9;
        const Forecast slow = simulate(list, machine, effort);
        const double alone_s = slow.alone_s[index_of(LaneKind::gpu)];
        EXPECT_GT(alone_s, 100 * 1e12 / flops);
        EXPECT_NEAR(slow.step_s / alone_s, 1, 1e-6);
    }
}

// With gradients on the drive too, the updates of the layer that is next in backward do not wait
// for the gradients of the one that computes: card and drive are busy side by side.
TEST(Simulate, GradientsThatLeaveDelayNoUpdate) {
    const Workload workload = small_workload(
        {.block_count = 16, .parts_per_layer = 4, .tied = false, .micro_batch_count = 2});
    Machine machine = swift_machine();
    machine.drive.read_bytes_per_s = 30e6;
    machine.drive.write_bytes_per_s = 12e6;
    Plan plan = uniform_plan(workload, on_nvme, Tier::ram);
    plan.group = 2;
    plan.path_count = 1;
    plan.rings.ram_stash_out = 4;
    plan.twice = spread_twice(workload, plan.homes, 1);
    const Effort effort = effort_of(workload, 1e9);
    const auto step_s = [&] {
        return simulate(build(workload, plan).value(), machine, effort).step_s;
    };
    machine.gpu_flops = 1e15;
    const double drive_s = step_s();
    machine.gpu_flops = 16 * 2 * 4 * 1e9 / drive_s;  // computes as long
    EXPECT_LT(step_s(), 1.1 * drive_s);
    plan.rings.ram_stash_out = 1;
    EXPECT_GT(step_s(), 1.15 * drive_s) << "or else this would show nothing";
}

TEST(Simulate, ABurstIsFasterWhileItLasts) {
    Machine machine = swift_machine();
    machine.drive.read_bytes_per_s = 8 * gb;
    machine.drive.write_bytes_per_s = 1 * gb;
    machine.drive.burst_bytes_per_s = 4 * gb;
    const Schedule list = list_of(blocks(), on_nvme, 2);
    const Effort effort = effort_of(blocks(), 1e3);
    const double sustained_s = simulate(list, machine, effort).step_s;
    machine.drive.burst_bytes = 1e15;
    const double burst_s = simulate(list, machine, effort, {.bursts = true}).step_s;
    EXPECT_LT(burst_s, 0.6 * sustained_s);
    machine.drive.burst_bytes = 1;  // over before the step that counts
    EXPECT_NEAR(simulate(list, machine, effort, {.bursts = true}).step_s, sustained_s,
                0.01 * sustained_s);
}

TEST(Demand, SharesAreThoseOfTheWorkedExample) {
    Machine machine = swift_machine();
    machine.link.h2d_bytes_per_s = 25 * gb;
    machine.memory_bytes_per_s = 70 * gb;
    const Schedule list = list_of(blocks(), on_nvme, 2);
    const std::vector<Demand> demands = demands_of(list, machine, effort_of(blocks(), 1e9));
    for (OpId op = 0; op < list.ops.size(); ++op) {
        for (const double share : demands[op].shares) {
            EXPECT_GE(share, 0);
            EXPECT_LE(share, 1);
        }
        if (list.ops[op].lane.kind != LaneKind::h2d) continue;
        EXPECT_DOUBLE_EQ(demands[op].shares[static_cast<size_t>(Resource::link)], 0.5);
        EXPECT_NEAR(demands[op].shares[static_cast<size_t>(Resource::memory)], 25.0 / 70, 1e-12);
    }
    // Slower memory than the link: the copy takes as long as memory does, and uses all of it.
    machine.memory_bytes_per_s = 5 * gb;
    const std::vector<Demand> slowed = demands_of(list, machine, effort_of(blocks(), 1e9));
    for (OpId op = 0; op < list.ops.size(); ++op) {
        if (list.ops[op].lane.kind != LaneKind::h2d) continue;
        EXPECT_NEAR(slowed[op].work_s, 5 * demands[op].work_s, 1e-9 * slowed[op].work_s);
        EXPECT_DOUBLE_EQ(slowed[op].shares[static_cast<size_t>(Resource::memory)], 1);
    }
}

TEST(Machine, RatesWithoutSenseAreNamed) {
    EXPECT_EQ(find_fault(swift_machine()), "");
    const auto fault_of = [](auto change) {
        Machine machine = swift_machine();
        change(machine);
        return find_fault(machine);
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto names = [](const std::string& fault, const std::string& field) {
        return fault.starts_with(field + ": ");
    };
    EXPECT_TRUE(names(fault_of([](Machine& m) { m.gpu_flops = 0; }), "gpu_flops"));
    EXPECT_TRUE(
        names(fault_of([&](Machine& m) { m.link.h2d_bytes_per_s = nan; }), "link.h2d_bytes_per_s"));
    EXPECT_TRUE(names(fault_of([](Machine& m) { m.link.both_ways = 3; }), "link.both_ways"));
    EXPECT_TRUE(names(fault_of([](Machine& m) { m.drive.both_ways = 0.5; }), "drive.both_ways"));
    EXPECT_TRUE(names(fault_of([](Machine& m) { m.drive.write_bytes_per_s = -1; }),
                      "drive.write_bytes_per_s"));
    EXPECT_TRUE(names(fault_of([](Machine& m) { m.core_count = 0; }), "core_count"));
    // No drive at all is a machine, too.
    EXPECT_EQ(fault_of([](Machine& m) { m.drive = {}; }), "");
}

}  // namespace
}  // namespace headrace::offload
