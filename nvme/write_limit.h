// WriteLimit: how many bytes per second a store may write, over all its paths together, so that
// others on a shared server keep their latency. A debt in time: each write owes what it takes at
// the rate, and the next one may go when nothing is owed. Time in which nothing was written is
// credit, up to credit_ns_max: so threads that wake up late do not lose the rate, and no burst is
// longer.
//
// Any thread, lock-free. Times are of CLOCK_MONOTONIC, given by the caller.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace::nvme {

class WriteLimit {
  public:
    static constexpr uint64_t credit_ns_max = 20'000'000;

    explicit WriteLimit(uint64_t bytes_per_s);  // at least 1

    // True: the bytes may go now, and are owed for.
    bool take(uint64_t now_ns, uint64_t size_bytes);

    // When nothing is owed any more; in the past if nothing is.
    uint64_t free_at_ns() const { return free_at_ns_.load(); }

  private:
    const double ns_per_byte_;
    std::atomic<uint64_t> free_at_ns_{0};
};

}  // namespace headrace::nvme
