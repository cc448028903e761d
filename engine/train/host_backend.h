// HostBackend: the hardware backend of the host device. One thread per memory and compute lane
// (gpu, h2d, d2h, cpu), each doing one op at a time in the order it was given them; the store's own
// threads for the nvme lanes. Threads sleep when there is nothing to do.
//
// Lives as long as its engine: torch's runtime keeps threads of its own for every thread that has
// ever computed, so a new lane thread per run() would leave more and more of them behind. Used by
// one run() at a time, from one thread. When run() returns nothing is in flight (CHECKed).
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/train/executor.h"
#include "offload/run.h"
#include "offload/store.h"

namespace headrace::engine {

class HostBackend final : public offload::Backend {
  public:
    // What happens at the borders of the periods of one run().
    struct Borders {
        // Prepares executor.data_of(period.index).
        std::function<offload::Status(const offload::Period&)> open;
        std::function<offload::Status(const offload::Period&)> close;
    };

    // `store` may be null where no slot is on nvme. on_lane_start is called first thing on each
    // lane's thread: torch's thread count is set per thread.
    HostBackend(Executor& executor, offload::Store* store,
                std::function<void(offload::LaneKind)> on_lane_start);
    ~HostBackend() override;

    // Before each run(). Nothing is in flight (CHECK).
    void begin(Borders borders);

    offload::Status open(const offload::Period& period) override { return borders_.open(period); }
    bool can_start(offload::LaneKind lane) const override;
    void start(const offload::Ticket& ticket) override;
    offload::Completion wait() override;
    offload::Status close(const offload::Period& period) override { return borders_.close(period); }

  private:
    struct Given {
        offload::Ticket ticket;
        int64_t given_ns = 0;
    };
    struct LaneQueue {
        std::condition_variable_any given;
        std::deque<Given> tickets;
    };

    void work(std::stop_token stop, offload::LaneKind kind);
    void start_on_store(const offload::Ticket& ticket);
    void finish(offload::Completion completion);
    LaneQueue& queue_of(offload::LaneKind kind) { return queues_[static_cast<size_t>(kind)]; }

    Executor& executor_;
    offload::Store* const store_;
    const std::function<void(offload::LaneKind)> on_lane_start_;
    Borders borders_;
    std::array<int, offload::lane_kind_count> in_flight_ = {};  // run()'s thread only

    std::mutex mutex_;  // guards all below
    std::array<LaneQueue, offload::lane_kind_count> queues_;
    std::condition_variable completed_;
    std::deque<offload::Completion> completions_;

    std::vector<std::jthread> threads_;  // last: stopped and joined before what they use goes
};

}  // namespace headrace::engine
