#include "engine/train/host_backend.h"

#include <utility>

#include "engine/train/clock.h"

namespace headrace::engine {

using offload::Completion;
using offload::LaneKind;
using offload::Ticket;

HostBackend::HostBackend(Executor& executor, offload::Store* store,
                         std::function<void(LaneKind)> on_lane_start)
    : executor_(executor), store_(store), on_lane_start_(std::move(on_lane_start)) {
    CHECK(on_lane_start_);
    for (const LaneKind kind : {LaneKind::gpu, LaneKind::h2d, LaneKind::d2h, LaneKind::cpu}) {
        threads_.emplace_back([this, kind](std::stop_token stop) { work(std::move(stop), kind); });
    }
}

HostBackend::~HostBackend() {
    for (const int count : in_flight_) CHECK_EQ(count, 0);
}

void HostBackend::begin(Borders borders) {
    CHECK(borders.open && borders.close);
    for (const int count : in_flight_) CHECK_EQ(count, 0);
    borders_ = std::move(borders);
}

bool HostBackend::can_start(LaneKind lane) const {
    return in_flight_[static_cast<size_t>(lane)] < depth_of(lane);
}

void HostBackend::start(const Ticket& ticket) {
    const LaneKind kind = executor_.schedule().ops[ticket.op].lane.kind;
    CHECK(can_start(kind));
    ++in_flight_[static_cast<size_t>(kind)];
    if (is_nvme(kind)) return start_on_store(ticket);
    std::lock_guard lock(mutex_);
    queue_of(kind).tickets.push_back({ticket, now_ns()});
    queue_of(kind).given.notify_one();
}

void HostBackend::start_on_store(const Ticket& ticket) {
    CHECK(store_ != nullptr);
    executor_.start_on(*store_, ticket,
                       [this, ticket, start_ns = now_ns()](offload::Status status) {
                           finish({.ticket = ticket,
                                   .status = std::move(status),
                                   .start_ns = start_ns,
                                   .end_ns = now_ns()});
                       });
}

void HostBackend::work(std::stop_token stop, LaneKind kind) {
    on_lane_start_(kind);
    LaneQueue& queue = queue_of(kind);
    while (true) {
        Given given;
        {
            std::unique_lock lock(mutex_);
            if (!queue.given.wait(lock, stop, [&] { return !queue.tickets.empty(); })) return;
            given = queue.tickets.front();
            queue.tickets.pop_front();
        }
        Completion completion{.ticket = given.ticket, .status = {}, .start_ns = now_ns()};
        offload::Result<offload::Verdict> result = executor_.execute(given.ticket, given.given_ns);
        if (result.ok()) {
            completion.verdict = *result;
        } else {
            completion.status = result.error();
        }
        completion.end_ns = now_ns();
        finish(std::move(completion));
    }
}

void HostBackend::finish(Completion completion) {
    std::lock_guard lock(mutex_);
    completions_.push_back(std::move(completion));
    completed_.notify_one();
}

Completion HostBackend::wait() {
    std::unique_lock lock(mutex_);
    completed_.wait(lock, [&] { return !completions_.empty(); });
    Completion completion = std::move(completions_.front());
    completions_.pop_front();
    const LaneKind kind = executor_.schedule().ops[completion.ticket.op].lane.kind;
    --in_flight_[static_cast<size_t>(kind)];
    return completion;
}

}  // namespace headrace::engine
