// simulate: how long a step of a schedule will take on a machine, and which lane is busy how long.
// A few periods are run on the simulated backend; the forecast is of the last but one, which has a
// step before it and the reads of a step after it, as most of a run's: from the verdict before it
// to its own.
#pragma once

#include <array>
#include <functional>
#include <limits>

#include "offload/demand.h"
#include "offload/run.h"

namespace headrace::offload {

struct SimulateOptions {
    int period_count = 4;              // at least 3; the first ones fill the rings
    Verdict verdict = Verdict::apply;  // of every step
    bool bursts = false;               // whether the drives' burst is fresh; else sustained rates
    std::function<void(const Span&)> on_span{};  // every op of every period; may be empty
    // A step that takes no less is of no interest: where it is seen to, no more is simulated, and
    // its step_s is only known to be at least this.
    double worth_s = std::numeric_limits<double>::infinity();
};

struct Forecast {
    double step_s = 0;
    // Busy seconds in that step, by lane; what of them the lane would need alone is its bound.
    std::array<double, lane_kind_count> busy_s = {};
    // What the lane's work takes with nothing else beside it; the largest is what no schedule
    // beats.
    std::array<double, lane_kind_count> alone_s = {};
    // Bytes that lanes of copies move in a step whose guards all hold.
    std::array<uint64_t, lane_kind_count> moved_bytes = {};
};

Forecast simulate(const Schedule& schedule, const Machine& machine, const Effort& effort,
                  const SimulateOptions& options = {});

}  // namespace headrace::offload
