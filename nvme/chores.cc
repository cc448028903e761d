#include "nvme/chores.h"

#include <utility>

#include "nvme/clock.h"
#include "offload/check.h"

namespace headrace::nvme {

Chores::Chores() : thread_([this] { work(); }) {}

Chores::~Chores() {
    std::lock_guard lock(mutex_);
    is_closing_ = true;
    given_.notify_one();
}

void Chores::add(ChoreKind kind, std::function<void()> chore) {
    CHECK(chore != nullptr);
    std::lock_guard lock(mutex_);
    CHECK(!is_closing_);
    waiting_.push_back({.kind = kind, .call = std::move(chore)});
    given_.notify_one();
}

void Chores::drain() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return waiting_.empty() && !running_; });
}

std::optional<RunningChore> Chores::running() const {
    std::lock_guard lock(mutex_);
    return running_;
}

LatencyHistogram Chores::sync_latency() const {
    std::lock_guard lock(mutex_);
    return sync_latency_;
}

void Chores::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        given_.wait(lock, [this] { return is_closing_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        Chore chore = std::move(waiting_.front());
        waiting_.pop_front();
        CHECK(!running_.has_value());
        const uint64_t started_ns = now_ns();
        running_ = {.kind = chore.kind, .started_ns = started_ns};
        lock.unlock();
        chore.call();
        chore.call = nullptr;  // what it holds goes before it counts as ended
        lock.lock();
        running_.reset();
        if (waiting_.empty()) idle_.notify_all();
        if (chore.kind == ChoreKind::sync) sync_latency_.add(now_ns() - started_ns);
    }
}

}  // namespace headrace::nvme
