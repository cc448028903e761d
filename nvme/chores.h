// Chores: one thread that makes blocking calls (fdatasync, the small writes of a commit) in the
// order they were given, so that whoever asks for one need not wait. Each path of a store has one,
// and the syncs of a commit run side by side. It knows what it is at and since when, for the
// watchdog, and how long the syncs took.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "nvme/latency.h"

namespace headrace::nvme {

// The moves of a commit, and its end (offload/store.h).
enum class ChoreKind : uint8_t { sync, record, seal, withdraw };

struct RunningChore {
    ChoreKind kind = ChoreKind::sync;
    uint64_t started_ns = 0;  // now_ns() when its call began
};

class Chores {
  public:
    Chores();
    ~Chores();  // what was given is done first
    Chores(const Chores&) = delete;
    Chores& operator=(const Chores&) = delete;

    // Any thread.
    void add(ChoreKind kind, std::function<void()> chore);

    // Waits until all that was given is done. Blocks.
    void drain();

    std::optional<RunningChore> running() const;
    LatencyHistogram sync_latency() const;  // of the chores of that kind that ended

  private:
    struct Chore {
        ChoreKind kind;
        std::function<void()> call;
    };
    void work();

    mutable std::mutex mutex_;
    std::condition_variable given_;
    std::condition_variable idle_;
    std::deque<Chore> waiting_;
    std::optional<RunningChore> running_;
    LatencyHistogram sync_latency_;
    bool is_closing_ = false;
    std::jthread thread_;  // last: joined first
};

}  // namespace headrace::nvme
