// DriveWatch: what the drives of a run do, from step to step: bytes moved, whether the rate left
// the one that the run started with, and in the end the figures of each path. Facts only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/train/metrics.h"
#include "engine/train/stop.h"
#include "nvme/nvme_store.h"
#include "nvme/rate_watch.h"

namespace headrace::engine {

struct MovedBytes {
    uint64_t read = 0;
    uint64_t written = 0;
};

class DriveWatch {
  public:
    // Watches nothing.
    DriveWatch() = default;
    // The store outlives the watch.
    explicit DriveWatch(const nvme::NvmeStore& store);

    // Since the last look, or since the beginning.
    MovedBytes look();

    // A step has ended since the last look: a line for each path whose rate has changed for good,
    // once; then what the step moved.
    std::vector<std::string> rate_changes();
    MovedBytes look_after_step() { return look(); }

    // Nothing is under way. What was moved since the last look is no step's.
    void look_at_rest();

    // Since the beginning, as of the last look; steps are not counted here.
    Written written() const { return written_; }

    // For metrics.jsonl: bytes, requests, latencies in ms, depth and stalls, per path.
    std::vector<Metric> metrics() const;
    // For people: one line per path.
    std::vector<std::string> lines() const;

  private:
    const nvme::NvmeStore* store_ = nullptr;
    std::vector<nvme::PathStatistics> seen_;  // per path, at the last look
    std::vector<nvme::RateWatch> rates_;
    Written written_;
};

}  // namespace headrace::engine
