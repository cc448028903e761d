// StepRecorder: what ran in the last periods of a training run, in bounded memory: a place for each
// of kept_period_count periods, taken again by the period that many later. A *step* is what lies
// between two verdicts: the time of period k's verdict minus that of period k-1's.
//
// A run has lists of its own for steps with fewer micro-batches; the one with the most is recorded,
// and the others leave no trace. Periods are renumbered, so that those of several calls of run()
// do not meet. Steps of the warm-up (warm_up_step_count of offload/slots.h) tell nothing of those
// that follow: they are told of only while there are no others. One thread.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "offload/timeline.h"

namespace headrace::offload {

class StepRecorder {
  public:
    static constexpr int64_t kept_period_count = 8;

    // A new run begins with so many steps that are unlike the others; at least 1 (CHECK).
    explicit StepRecorder(int64_t warm_up_step_count);

    // The spans to come are of a call of run() over this list, which outlives the recorder.
    void begin(const Schedule& schedule);
    void add(const Span& span);

    // Of the periods that are kept. Null while there was none.
    const Schedule* schedule() const { return schedule_; }
    Timeline timeline() const;

    // The steps that are kept whole, the oldest first. The first step of a call of run() has no
    // verdict before it and is none of them.
    std::vector<Window> steps() const;
    // The one of median time, the longer one of two; nothing where there is none.
    std::optional<Window> median_step() const;

  private:
    struct Kept {
        int64_t period = -1;
        int64_t step = -1;  // since the recorder was made
        std::vector<Span> spans;
        std::optional<int64_t> decided_ns;  // the end of its verdict
    };

    int64_t warm_up_step_count_;
    const Schedule* schedule_ = nullptr;
    bool is_recording_ = false;
    int64_t first_period_ = 0;  // the number that period 0 of the present call has here
    int64_t next_period_ = 0;   // after all that were seen
    int64_t next_step_ = 0;     // the same, without gaps
    std::array<Kept, kept_period_count> kept_;
};

}  // namespace headrace::offload
