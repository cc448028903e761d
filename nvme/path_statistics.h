// PathStatistics: what one path of a store has done since it was opened. Always on: it costs two
// looks at the clock and a few additions per block, about 0.1 us where a block takes 1000.
//
// A *stall* is time that the drive lost to us: nothing was in flight although a block waited and
// was allowed to go, for at least stall_ns_min. A drive that is slow is not a stall (it shows in
// the latencies), nor is a queue that is empty (the schedule had nothing to do), nor a write that
// is held by the write limit (limited_ns). A value.
#pragma once

#include <cstdint>
#include <string>

#include "nvme/latency.h"

namespace headrace::nvme {

inline constexpr uint64_t stall_ns_min = 1'000'000;

struct PathStatistics {
    uint64_t read_bytes = 0;  // of blocks that were moved whole
    uint64_t write_bytes = 0;
    uint64_t request_count = 0;        // blocks that ended, moved or not
    uint64_t failed_count = 0;         // those that ended in an error
    LatencyHistogram read_latency{};   // of a block, from when a drive's thread took it to its end
    LatencyHistogram write_latency{};  // the same
    LatencyHistogram sync_latency{};   // of making the data file durable
    uint64_t busy_ns = 0;              // with a block in flight
    uint64_t depth_ns = 0;             // blocks in flight, summed over time
    uint32_t depth_max = 0;            // since the store was opened
    uint64_t stall_count = 0;
    uint64_t stall_ns = 0;
    uint64_t limited_ns = 0;  // nothing in flight, and writes held by the limit

    // Blocks in flight while there were any; 0 if there never were.
    double depth_mean() const;

    // What happened since `before`, an earlier look at the same path (CHECK).
    PathStatistics operator-(const PathStatistics& before) const;
    bool operator==(const PathStatistics&) const = default;
};

// "read 1.5 GiB in 1536 requests (p50 2.9, p90 3.3, p99 6.5, max 9.1 ms), wrote ..., depth mean 7.2
// max 8, 2 stalls of 14 ms, 12 syncs (p50 0.1 ms, max 0.3 ms)": one line for people.
std::string describe(const PathStatistics& statistics);

}  // namespace headrace::nvme
