// Card: what does the ops of the lanes gpu, h2d and d2h. One that computes (host_card.h), and
// one that takes the time of a card that is not there (emulated_card.h); nothing else in the
// engine knows which of them it has.
//
// Ops of different lanes may execute at once, each on its lane's thread; what they share is ordered
// by the schedule's edges.
#pragma once

#include <cstdint>

#include "engine/train/step.h"
#include "offload/schedule.h"

namespace headrace::engine {

// One op of the list in use, and what it has beside its slots.
struct CardOp {
    offload::OpId id = 0;
    int64_t given_ns = 0;    // when run gave it to its lane (engine/train/clock.h)
    const StepBatch& batch;  // of its period
    // Pass head: d loss / d (-log p) of one token.
    float loss_scale = 0;
    HeadResult* loss = nullptr;  // written by passes head and loss
    NormRecord* norm = nullptr;  // written by reduce
};

class Card {
  public:
    virtual ~Card() = default;

    // The list that the coming ops are of. Nothing is in flight.
    virtual void use(const offload::Schedule& schedule) = 0;

    // First thing on each lane's thread.
    virtual void start_lane() = 0;

    // Does one op and returns when it is done.
    virtual offload::Status execute(const CardOp& op) = 0;

    // Before weights are loaded: whether a micro-batch of this shape computes inside the workspace.
    // Error: does_not_fit.
    virtual offload::Status try_shape(int64_t row_count, int64_t column_count) = 0;

    // Whether the gpu slab is memory. Where it is not, whoever touches it dies.
    virtual bool has_memory() const = 0;
};

}  // namespace headrace::engine
