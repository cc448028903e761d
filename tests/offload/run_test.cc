// Goal: run carries out the meaning of the list on any timing. Method: a backend whose slots hold
// names of values and checks every read, completing ops in seeded random order; the serial
// backend's order; a failing op; the verdicts of steps driving guards, two periods open.
#include "offload/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "offload/build.h"
#include "offload/serial.h"
#include "tests/offload/small_workloads.h"

namespace headrace::offload {
namespace {

// A value with its step counted from the start of the run instead of from the period.
Value absolute(Value value, int64_t period) {
    value.step = static_cast<int8_t>(value.step + period);
    return value;
}

// Slots of names. Reads are checked when an op starts and again when it completes.
class NamedSlots {
  public:
    explicit NamedSlots(const Schedule& schedule) : schedule_(schedule) {
        for (const Op& op : schedule.ops) {
            for (const Access& access : op.accesses) {
                const bool is_pending_stash =
                    access.value.kind == Kind::stash && access.value.step == -1;
                if (access.mode != Mode::read) continue;
                if (access.value.step != -2 && !is_pending_stash) continue;
                if (schedule.slots[access.slot].is_home)
                    contents_.insert({access.slot, access.value});
            }
        }
    }

    void begin(const Ticket& ticket) {
        check_reads(ticket);
        for (const Access& access : op_of(ticket).accesses) {
            if (access.mode == Mode::write) contents_.erase(access.slot);
        }
    }

    void finish(const Ticket& ticket) {
        for (const Access& access : op_of(ticket).accesses) {
            if (access.mode != Mode::write) continue;
            contents_[access.slot] = absolute(access.value, ticket.period);
        }
        ++op_count_;
    }

    // A read finds the value, or the one it replaces where the op that makes it was skipped.
    void check_reads(const Ticket& ticket) {
        for (const Access& access : op_of(ticket).accesses) {
            if (access.mode != Mode::read || is_control(access.value.kind)) continue;
            const auto found = contents_.find(access.slot);
            ASSERT_NE(found, contents_.end()) << describe(schedule_, op_of(ticket));
            Value expected = absolute(access.value, ticket.period);
            Value actual = found->second;
            const bool is_state = actual.kind == Kind::hi || actual.kind == Kind::opt;
            if (is_state && steps_skipped_) expected.step = actual.step;
            ASSERT_EQ(expected, actual)
                << describe(schedule_, op_of(ticket)) << " found " << describe(actual);
        }
    }

    const Op& op_of(const Ticket& ticket) const { return schedule_.ops[ticket.op]; }
    size_t op_count() const { return op_count_; }
    void allow_skips() { steps_skipped_ = true; }

  private:
    const Schedule& schedule_;
    std::map<SlotId, Value> contents_;
    size_t op_count_ = 0;
    bool steps_skipped_ = false;
};

// Completes a random one of the ops in flight.
class RandomBackend final : public Backend {
  public:
    RandomBackend(const Schedule& schedule, uint64_t seed)
        : slots(schedule), schedule_(schedule), random_(seed) {}

    Status open(const Period&) override { return {}; }
    Status close(const Period& period) override {
        EXPECT_EQ(period.index, closed_count++);
        return {};
    }
    bool can_start(LaneKind) const override { return flying_.size() < 6; }
    void start(const Ticket& ticket) override {
        slots.begin(ticket);
        flying_.push_back(ticket);
    }
    Completion wait() override {
        const size_t i = random_() % flying_.size();
        const Ticket ticket = flying_[i];
        flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(i));
        if (ticket.op == failing_op) {
            return {.ticket = ticket, .status = Error{ErrorCode::failed, "the drive is gone", ""}};
        }
        slots.finish(ticket);
        return {.ticket = ticket, .status = {}, .verdict = verdict_of(ticket.period)};
    }
    Verdict verdict_of(int64_t period) const {
        return skips_odd && period % 2 == 1 ? Verdict::skip : Verdict::apply;
    }

    NamedSlots slots;
    int64_t closed_count = 0;
    OpId failing_op = ~OpId{0};
    bool skips_odd = false;
    size_t in_flight() const { return flying_.size(); }

  private:
    const Schedule& schedule_;
    std::mt19937_64 random_;
    std::vector<Ticket> flying_;
};

// `count` training periods, then a drain; an applied step is pending before the first.
RunOptions periods(int64_t count) {
    auto next = std::make_shared<int64_t>(0);
    return {.next_period = [next, count]() -> std::optional<Period> {
                const int64_t index = (*next)++;
                if (index > count) return std::nullopt;
                return Period{.index = index, .trains = index < count};
            },
            .verdict_before = Verdict::apply};
}

Schedule example() {
    const Workload workload = small_workload({2, 2, true, 2});
    Plan plan = uniform_plan(workload, PartHomes{}, Tier::nvme);
    plan.group = 2;
    plan.kept_homes = {std::nullopt, Tier::ram, Tier::gpu, std::nullopt};
    return *build(workload, plan);
}

TEST(Run, RandomTimingsFindEveryValue) {
    const Schedule schedule = example();
    for (uint64_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        RandomBackend backend(schedule, seed);
        const Result<Verdict> verdict = run(schedule, backend, periods(4));
        ASSERT_TRUE(verdict.ok()) << verdict.error().text();
        EXPECT_EQ(*verdict, Verdict::skip);  // of the drain
        EXPECT_EQ(backend.closed_count, 5);
        if (HasFailure()) return;
    }
}

TEST(Run, SkippedStepsRunNoUpdate) {
    const Schedule schedule = example();
    RandomBackend backend(schedule, 7);
    backend.skips_odd = true;
    backend.slots.allow_skips();
    int64_t update_count = 0;
    RunOptions options = periods(4);
    options.on_span = [&](const Span& span) {
        if (schedule.ops[span.ticket.op].kind == OpKind::update) ++update_count;
    };
    ASSERT_TRUE(run(schedule, backend, options).ok());
    const auto parts = static_cast<int64_t>(schedule.workload.layout.parts.size());
    EXPECT_EQ(update_count, 3 * parts);  // of the step before the run, of 0 and of 2
}

TEST(Run, SerialBackendFollowsTheList) {
    const Schedule schedule = example();
    std::vector<Ticket> seen;
    SerialBackend backend({.execute = [&](const Ticket& ticket) -> Result<Verdict> {
                               seen.push_back(ticket);
                               return Verdict::apply;
                           },
                           .open = {},
                           .close = {}});
    ASSERT_TRUE(run(schedule, backend, periods(2)).ok());
    EXPECT_TRUE(std::ranges::is_sorted(seen));
    EXPECT_GT(seen.size(), 2 * schedule.ops.size());
}

TEST(Run, FirstErrorIsReturnedWithItsOpAfterDraining) {
    const Schedule schedule = example();
    for (OpId op = 0; op < schedule.ops.size(); op += 7) {
        RandomBackend backend(schedule, op);
        backend.failing_op = op;
        const Result<Verdict> verdict = run(schedule, backend, periods(3));
        ASSERT_FALSE(verdict.ok());
        EXPECT_NE(verdict.error().text().find("the drive is gone"), std::string::npos);
        EXPECT_NE(verdict.error().text().find(describe(schedule, schedule.ops[op])),
                  std::string::npos);
        EXPECT_EQ(backend.in_flight(), 0u);
    }
}

}  // namespace
}  // namespace headrace::offload
