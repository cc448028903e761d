#include "offload/simulated.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace headrace::offload {

namespace {

// Work and time below this are rounding.
constexpr double instant_s = 1e-12;

// A timeline ends after 146 years, which a plan for rates without sense may say but not overflow.
constexpr double timeline_ns_max = 0x1p62;

int64_t ns_of(double time_s) {
    return std::llround(std::min(time_s * 1e9, timeline_ns_max));
}

}  // namespace

Speeds fair_speeds(const std::array<const Demand*, lane_kind_count>& running) {
    Speeds speeds = {};
    std::array<double, resource_count> left;
    left.fill(1);
    std::array<bool, lane_kind_count> grows;
    for (size_t lane = 0; lane < running.size(); ++lane) grows[lane] = running[lane] != nullptr;
    while (std::ranges::any_of(grows, std::identity{})) {
        double step = 1;
        std::array<double, resource_count> asked = {};
        for (size_t lane = 0; lane < running.size(); ++lane) {
            if (!grows[lane]) continue;
            step = std::min(step, 1 - speeds[lane]);
            for (size_t i = 0; i < resource_count; ++i) asked[i] += running[lane]->shares[i];
        }
        for (size_t i = 0; i < resource_count; ++i) {
            if (asked[i] > 0) step = std::min(step, left[i] / asked[i]);
        }
        for (size_t i = 0; i < resource_count; ++i) left[i] -= step * asked[i];
        for (size_t lane = 0; lane < running.size(); ++lane) {
            if (!grows[lane]) continue;
            speeds[lane] += step;
            if (speeds[lane] >= 1 - instant_s) grows[lane] = false;
            for (size_t i = 0; i < resource_count; ++i) {
                const bool is_full = left[i] <= instant_s && running[lane]->shares[i] > 0;
                if (is_full) grows[lane] = false;
            }
        }
    }
    return speeds;
}

SimulatedBackend::SimulatedBackend(const Schedule& schedule, std::vector<Demand> demands,
                                   Verdict verdict, Burst burst)
    : schedule_(schedule), demands_(std::move(demands)), verdict_(verdict), burst_(burst) {
    CHECK_EQ(demands_.size(), schedule_.ops.size());
    CHECK_GE(burst_.speed, 1.0);
}

bool SimulatedBackend::can_start(LaneKind lane) const {
    return started_[static_cast<size_t>(lane)] < depth_of(lane);
}

void SimulatedBackend::start(const Ticket& ticket) {
    const LaneKind kind = schedule_.ops[ticket.op].lane.kind;
    CHECK(can_start(kind));
    ++started_[static_cast<size_t>(kind)];
    const Demand& demand = demands_[ticket.op];
    const Waiting op{.ticket = ticket,
                     .ready_s = now_s_ + demand.latency_s,
                     .begun_s = now_s_,
                     .left_s = demand.work_s};
    if (demand.work_s <= instant_s) {
        without_work_.push_back(op);
    } else {
        lanes_[static_cast<size_t>(kind)].ops.push_back(op);
    }
}

bool SimulatedBackend::is_at_work(const Lane& lane) const {
    return !lane.ops.empty() && lane.ops.front().ready_s <= now_s_ + instant_s;
}

// Seconds of work that the lane does in one.
double SimulatedBackend::pace_of(size_t lane) const {
    const bool bursts =
        static_cast<LaneKind>(lane) == LaneKind::nvme_write && burst_.work_s > instant_s;
    return lanes_[lane].speed * (bursts ? burst_.speed : 1);
}

void SimulatedBackend::set_speeds() {
    std::array<const Demand*, lane_kind_count> running = {};
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (is_at_work(lanes_[lane])) running[lane] = &demands_[lanes_[lane].ops[0].ticket.op];
    }
    const Speeds speeds = fair_speeds(running);
    for (size_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane].speed = speeds[lane];
}

double SimulatedBackend::next_event_s() const {
    double time_s = std::numeric_limits<double>::infinity();
    for (const Waiting& op : without_work_) time_s = std::min(time_s, op.ready_s);
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        const Lane& at = lanes_[lane];
        if (at.ops.empty()) continue;
        if (!is_at_work(at)) {
            time_s = std::min(time_s, at.ops.front().ready_s);
            continue;
        }
        const double pace = pace_of(lane);
        CHECK_GT(pace, 0.0);
        time_s = std::min(time_s, now_s_ + at.ops.front().left_s / pace);
        if (static_cast<LaneKind>(lane) == LaneKind::nvme_write && burst_.work_s > instant_s) {
            time_s = std::min(time_s, now_s_ + burst_.work_s / pace);
        }
    }
    return std::max(time_s, now_s_);
}

void SimulatedBackend::advance_to(double time_s) {
    const double passed_s = time_s - now_s_;
    CHECK_GE(passed_s, 0.0);
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (!is_at_work(lanes_[lane])) continue;
        const double done_s = passed_s * pace_of(lane);
        lanes_[lane].ops.front().left_s -= done_s;
        if (static_cast<LaneKind>(lane) == LaneKind::nvme_write) {
            burst_.work_s = std::max(0.0, burst_.work_s - done_s);
        }
    }
    now_s_ = time_s;
    drop_rounding();
}

// What is left and too short to move the clock is done: after some hours the clock's own rounding
// is more than an instant, and would be waited for without end.
void SimulatedBackend::drop_rounding() {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (!is_at_work(lanes_[lane]) || lanes_[lane].speed == 0) continue;
        const double pace = pace_of(lane);
        double& left_s = lanes_[lane].ops.front().left_s;
        if (now_s_ + left_s / pace <= now_s_) left_s = 0;
        const bool bursts = static_cast<LaneKind>(lane) == LaneKind::nvme_write;
        if (bursts && now_s_ + burst_.work_s / pace <= now_s_) burst_.work_s = 0;
    }
}

Completion SimulatedBackend::completion_of(const Waiting& op) const {
    const bool is_verdict = schedule_.ops[op.ticket.op].kind == OpKind::verdict;
    return {.ticket = op.ticket,
            .status = {},
            .verdict = is_verdict ? verdict_ : Verdict::skip,
            .start_ns = ns_of(op.begun_s),
            .end_ns = ns_of(now_s_)};
}

std::optional<Completion> SimulatedBackend::take_completed() {
    const auto timer = std::ranges::find_if(
        without_work_, [&](const Waiting& op) { return op.ready_s <= now_s_ + instant_s; });
    if (timer != without_work_.end()) {
        const Completion completion = completion_of(*timer);
        without_work_.erase(timer);
        return completion;
    }
    for (Lane& lane : lanes_) {
        if (!is_at_work(lane) || lane.ops.front().left_s > instant_s) continue;
        const Completion completion = completion_of(lane.ops.front());
        lane.ops.pop_front();
        if (!lane.ops.empty())
            lane.ops.front().begun_s = std::max(now_s_, lane.ops.front().ready_s);
        return completion;
    }
    return {};
}

Completion SimulatedBackend::wait() {
    while (true) {
        if (std::optional<Completion> completion = take_completed()) {
            const LaneKind kind = schedule_.ops[completion->ticket.op].lane.kind;
            --started_[static_cast<size_t>(kind)];
            return *completion;
        }
        set_speeds();
        const double time_s = next_event_s();
        CHECK(std::isfinite(time_s));  // something is in flight
        advance_to(time_s);
    }
}

}  // namespace headrace::offload
