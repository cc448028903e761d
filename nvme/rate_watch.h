// RateWatch: says once when a drive no longer runs at the rate that a run started with. A consumer
// drive whose cache is full, one that throttles for heat, and a neighbour that begins to use the
// drive all look like this. Pure: it is told bytes and time, and reads no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace headrace::nvme {

struct RateChange {
    double started_bytes_per_s = 0;
    double observed_bytes_per_s = 0;  // the median of the steps that told
};

class RateWatch {
  public:
    static constexpr size_t steps_to_tell = 5;      // in a row, all on the same side
    static constexpr size_t steps_to_learn = 3;     // whose median is the start
    static constexpr double change_to_tell = 0.30;  // of the started rate

    // Learns the started rate from the first steps: what a step asks of a drive may be less than
    // the drive can do, and only a change of it means something.
    RateWatch() = default;

    // One step: what the drive moved, and for how long it had something in flight. Steps without
    // either say nothing. The change, the first time; nothing ever after.
    std::optional<RateChange> add(uint64_t moved_bytes, double busy_seconds);

    double started_bytes_per_s() const { return started_bytes_per_s_; }  // 0: not learnt yet

  private:
    double started_bytes_per_s_ = 0;
    bool has_told_ = false;
    std::vector<double> recent_;  // while learning: the first; then: those that differ, in a row
};

}  // namespace headrace::nvme
