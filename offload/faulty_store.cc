#include "offload/faulty_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "offload/check.h"

namespace headrace::offload {

FaultyStore::FaultyStore(Store& below, const Faults& faults)
    : below_(below), faults_(faults), random_(faults.seed), thread_([this] { deliver(); }) {}

FaultyStore::~FaultyStore() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return in_flight_count_ == 0; });
    CHECK(held_.empty());
    is_closing_ = true;
    changed_.notify_all();
    lock.unlock();
    thread_.join();
}

void FaultyStore::start(Transfer transfer) {
    CHECK_LT(transfer.place, below_.places().size());
    CHECK(transfer.done != nullptr);
    const uint64_t number = begin(started_count_);
    if (number == faults_.failing_transfer) {
        const PlaceSpec& place = below_.places()[transfer.place];
        const char* verb = transfer.direction == Direction::read ? "read" : "write";
        hold(std::move(transfer.done),
             Error{ErrorCode::failed,
                   std::string("cannot ") + verb + " the place '" + place.name + "'",
                   "injected fault of transfer " + std::to_string(number)});
        return;
    }
    below_.start({.direction = transfer.direction,
                  .place = transfer.place,
                  .memory = transfer.memory,
                  .done = held(std::move(transfer.done)),
                  .sum = transfer.sum});
}

// One more in flight; its number.
uint64_t FaultyStore::begin(uint64_t& count) {
    std::lock_guard lock(mutex_);
    in_flight_count_++;
    return count++;
}

// What hands an outcome to `done` later.
Done FaultyStore::held(Done done) {
    return [this, done = std::move(done)](Status outcome) mutable {
        hold(std::move(done), std::move(outcome));
    };
}

void FaultyStore::hold(Done done, Status outcome) {
    std::lock_guard lock(mutex_);
    held_.push_back({.done = std::move(done), .outcome = std::move(outcome)});
    changed_.notify_all();
}

void FaultyStore::deliver() {
    while (true) {
        const uint64_t yield_count = random_() % (uint64_t{faults_.yield_count_max} + 1);
        for (uint64_t i = 0; i < yield_count; i++) std::this_thread::yield();
        Completion completion;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return !held_.empty() || is_closing_; });
            if (held_.empty()) return;
            const uint64_t choices =
                std::min<uint64_t>(held_.size(), uint64_t{faults_.held_count_max} + 1);
            const auto chosen = held_.begin() + static_cast<std::ptrdiff_t>(random_() % choices);
            completion = std::move(*chosen);
            held_.erase(chosen);
        }
        completion.done(std::move(completion.outcome));
        completion.done = nullptr;
        std::lock_guard lock(mutex_);
        CHECK_GT(in_flight_count_, 0u);
        in_flight_count_--;
        if (in_flight_count_ == 0) changed_.notify_all();
    }
}

void FaultyStore::sync(uint32_t path, Done done) {
    CHECK_LT(path, path_count());
    if (begin(sync_count_) != faults_.failing_sync) return below_.sync(path, held(std::move(done)));
    hold(std::move(done), Error{ErrorCode::failed, "cannot make the store durable",
                                "injected fault of sync " + std::to_string(faults_.failing_sync)});
}

void FaultyStore::record(const CommitRecord& record, Done done) {
    begin(commit_count_);
    below_.record(record, held(std::move(done)));
}

void FaultyStore::seal(Done done) {
    begin(commit_count_);
    below_.seal(held(std::move(done)));
}

void FaultyStore::withdraw(Done done) {
    begin(commit_count_);
    below_.withdraw(held(std::move(done)));
}

uint64_t FaultyStore::started_count() const {
    std::lock_guard lock(mutex_);
    return started_count_;
}

}  // namespace headrace::offload
