// The simulated backend: the same run, a virtual clock. A lane does one op at a time (nvme_read and
// nvme_write too: a drive serves transfers in the order they came), a latency passes while the op
// before is at work, and ops on different lanes slow one another down where they share a resource:
// at every moment all running ops go at the largest common speed that no resource refuses, and
// those that none of the full resources holds up go faster. What has a latency and no work (sync,
// seal) occupies no lane.
//
// Worked example: a read and a write on drives that take turns (both_ways 1) go at half speed
// each; when the read ends, the write goes on at full speed.
//
// Nothing is executed, and the same input gives the same times. The clock begins at 0.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "offload/demand.h"
#include "offload/run.h"

namespace headrace::offload {

// Of each lane's own speed, by max-min fairness: `running` are the lanes' demands, null where one
// is idle. Idle lanes get 0.
using Speeds = std::array<double, lane_kind_count>;
Speeds fair_speeds(const std::array<const Demand*, lane_kind_count>& running);

// Writes go at `speed` times their own until work_s of theirs is done.
struct Burst {
    double work_s = 0;  // of writes, at their sustained speed
    double speed = 1;   // at least 1
};

class SimulatedBackend final : public Backend {
  public:
    // One demand per op. The schedule outlives the backend. Every step has this verdict.
    SimulatedBackend(const Schedule& schedule, std::vector<Demand> demands, Verdict verdict,
                     Burst burst = {});

    Status open(const Period&) override { return {}; }
    bool can_start(LaneKind lane) const override;
    void start(const Ticket& ticket) override;
    Completion wait() override;
    Status close(const Period&) override { return {}; }

    double now_s() const { return now_s_; }

  private:
    struct Waiting {
        Ticket ticket;
        double ready_s = 0;  // when its latency has passed
        double begun_s = 0;  // when it began to work
        double left_s = 0;   // work, alone
    };
    struct Lane {
        std::deque<Waiting> ops;  // the first one works once it is ready
        double speed = 0;
    };

    bool is_at_work(const Lane& lane) const;
    double pace_of(size_t lane) const;
    void set_speeds();
    double next_event_s() const;
    void advance_to(double time_s);
    void drop_rounding();
    std::optional<Completion> take_completed();
    Completion completion_of(const Waiting& op) const;

    const Schedule& schedule_;
    const std::vector<Demand> demands_;
    const Verdict verdict_;
    Burst burst_;  // what is left of it
    std::array<Lane, lane_kind_count> lanes_;
    std::vector<Waiting> without_work_;
    std::array<int, lane_kind_count> started_ = {};
    double now_s_ = 0;
};

}  // namespace headrace::offload
