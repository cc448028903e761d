// run: one loop that carries out a schedule, period after period, on any backend. It starts what is
// ready, in list order, and reaps completions; nobody else decides what happens next.
//
// An op is ready when every op it has an edge from is complete. In-order lanes (gpu, h2d, d2h, net)
// start ops in list order only; nvme and cpu lanes start the first ready one. Two periods may be
// open, so that the next forward's reads run under this backward; period t+1 starts no op before
// period t-1 is complete. An op whose guard is false is complete as soon as its turn comes.
//
// On a failure run starts nothing more, drains what is in flight and returns the first error with
// its op. run() blocks and is called from one thread; it never asks whether the backend is
// simulated.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "offload/schedule.h"

namespace headrace::offload {

// What the verdict op of a period says. skip: no update of this step will happen.
enum class Verdict : uint8_t { skip, apply };

// One pass over the list. `index` counts from 0 within a call of run.
struct Period {
    int64_t index = 0;
    bool trains = true;  // false: a drain, only the pending updates happen
    bool operator==(const Period&) const = default;
};

// Names one op of one open period.
struct Ticket {
    int64_t period = 0;
    OpId op = 0;
    auto operator<=>(const Ticket&) const = default;
};

struct Completion {
    Ticket ticket;
    Status status;
    Verdict verdict = Verdict::skip;  // verdict ops only
    // When the op ran, on the backend's clock; for the timeline.
    int64_t start_ns = 0;
    int64_t end_ns = 0;
};

// Carries out ops; the seam between the loop and devices. All calls come from run()'s thread.
class Backend {
  public:
    virtual ~Backend() = default;

    // A period is about to be opened: the last moment to get its data ready. May block.
    virtual Status open(const Period& period) = 0;

    // Whether the lane takes another op now; asked before each start.
    virtual bool can_start(LaneKind lane) const = 0;

    // Begins an op whose guard holds and whose edges are met. Must not block on the op.
    virtual void start(const Ticket& ticket) = 0;

    // Waits for any started op to complete. Called only while some are in flight.
    virtual Completion wait() = 0;

    // All ops of the period are complete.
    virtual Status close(const Period& period) = 0;
};

// When one op ran. Ops whose guard was false have none.
struct Span {
    Ticket ticket;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
};

struct RunOptions {
    // Whether there is a next period, and which; asked when one may open. The index is set by run.
    std::function<std::optional<Period>()> next_period;
    Verdict verdict_before = Verdict::skip;      // of the step before the first period
    std::function<void(const Span&)> on_span{};  // called as ops complete; may be empty
    // Asked as ops complete, whether the caller has seen enough: then nothing more is started, what
    // is started is drained, and run ends where it stands. May be empty.
    std::function<bool()> is_enough{};
};

// The last period's verdict, which the next call must be told.
Result<Verdict> run(const Schedule& schedule, Backend& backend, const RunOptions& options);

}  // namespace headrace::offload
