// LatencyHistogram: how long requests took, in a fixed number of buckets, so that it can be kept
// for every request of a run of weeks: adding one is a few instructions and takes no memory.
//
// A bucket is an eighth of a power of two, from 1 us to 137 s; what is shorter or longer falls into
// the first or the last. So a percentile is true to an eighth of itself, and never told too low.
// A value: two moments' histograms are subtracted to see what happened between them. No clock here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace::nvme {

class LatencyHistogram {
  public:
    static constexpr uint64_t shortest_ns = 1 << 10;
    static constexpr size_t buckets_per_octave = 8;
    static constexpr size_t bucket_count = 27 * buckets_per_octave;

    void add(uint64_t latency_ns);

    uint64_t count() const { return count_; }
    uint64_t max_ns() const { return max_ns_; }
    double mean_ns() const;  // 0 without requests

    // At most this long were `percent` (above 0, up to 100) of the requests: the upper end of the
    // bucket that holds the one in question, or the maximum if that is less. 0 without requests.
    uint64_t percentile_ns(double percent) const;

    // What came since `before`, an earlier state of this one (CHECK). The maximum of the difference
    // is known to its bucket.
    LatencyHistogram operator-(const LatencyHistogram& before) const;
    LatencyHistogram& operator+=(const LatencyHistogram& other);
    bool operator==(const LatencyHistogram&) const = default;

    // Where a latency is counted, and the first latency that is counted behind it.
    static size_t bucket_of(uint64_t latency_ns);
    static uint64_t end_of_bucket_ns(size_t bucket);

  private:
    std::array<uint64_t, bucket_count> counts_ = {};
    uint64_t count_ = 0;
    uint64_t sum_ns_ = 0;
    uint64_t max_ns_ = 0;
};

}  // namespace headrace::nvme
