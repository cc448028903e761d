// FaultyStore: wraps a Store and makes its days bad, from a seed: chosen transfers fail, a sync
// fails, and completions arrive late and out of order. Nothing is corrupted silently: a transfer
// that fails never reaches the wrapped store, so the place keeps its truth. For tests of whoever
// drives a store. `done` is called on this object's own thread. No clock: a delay is a random
// number of yields.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "offload/store.h"

namespace headrace::offload {

struct Faults {
    static constexpr uint64_t never = std::numeric_limits<uint64_t>::max();
    uint64_t seed = 0;
    uint64_t failing_transfer = never;  // counted from 0 in the order of start()
    uint64_t failing_sync = never;      // counted from 0
    uint32_t held_count_max = 0;        // completions that may be overtaken at a time; 0: in order
    uint32_t yield_count_max = 0;       // before each completion
};

class FaultyStore final : public Store {
  public:
    // `below` outlives this object.
    FaultyStore(Store& below, const Faults& faults);
    ~FaultyStore() override;  // waits until everything started is done

    void start(Transfer transfer) override;
    void sync(uint32_t path, Done done) override;
    void record(const CommitRecord& record, Done done) override;
    void seal(Done done) override;
    void withdraw(Done done) override;
    std::optional<CommitRecord> newest_commit() const override { return below_.newest_commit(); }
    uint32_t path_count() const override { return below_.path_count(); }
    const std::vector<PlaceSpec>& places() const override { return below_.places(); }

    uint64_t started_count() const;

  private:
    struct Completion {
        Done done;
        Status outcome;
    };
    uint64_t begin(uint64_t& count);
    Done held(Done done);
    void hold(Done done, Status outcome);
    void deliver();

    Store& below_;
    const Faults faults_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Completion> held_;  // oldest first
    uint64_t started_count_ = 0;
    uint64_t sync_count_ = 0;
    uint64_t commit_count_ = 0;  // records, seals and withdrawals
    uint64_t in_flight_count_ = 0;
    bool is_closing_ = false;
    std::mt19937_64 random_;  // of the delivering thread
    std::jthread thread_;     // last: joined first
};

}  // namespace headrace::offload
