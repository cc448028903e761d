// EmulatedCard: a card that is not there. Each op of gpu, h2d and d2h takes the time that the
// machine's rates say for it and does nothing else: it neither computes nor copies, and the gpu
// slab need not be memory. Drives, updates, commits and the loop are the real ones, so a step shows
// what they do under a card of that speed.
//
// Time: an op ends `latency` after it was given to its lane or, where that is later, when the op
// before it has ended, plus its work alone: as the simulator has it, a latency hides behind the op
// before. Ends are absolute, so a thread that wakes late does not make the next op late. The two
// directions of the link do not slow each other down, and a copy to the card reads no memory.
//
// What arrives in ram is really written, with a small finite value, so that updates and drives have
// numbers to work on: gradients are all alike, the norm is theirs, and the loss is that of a model
// that knows nothing.
#pragma once

#include <array>
#include <vector>

#include "engine/models/llama.h"
#include "engine/train/card.h"
#include "engine/train/slot_bytes.h"
#include "offload/demand.h"

namespace headrace::engine {

struct PretendedCard {
    offload::Machine machine;  // its gpu and link
    // The largest micro-batch: shorter ones take as much less time as they are less work.
    int64_t row_count_max = 1;
    int64_t column_count_max = 1;
};

class EmulatedCard final : public Card {
  public:
    // The model and the slots outlive it.
    EmulatedCard(const PretendedCard& card, const LlamaConfig& model, const SlotBytes& slots);

    void use(const offload::Schedule& schedule) override;
    void start_lane() override;
    offload::Status execute(const CardOp& call) override;
    offload::Status try_shape(int64_t, int64_t) override { return {}; }  // nothing computes
    bool has_memory() const override { return false; }

  private:
    double share_of_work(const CardOp& call) const;
    void leave_results(const CardOp& call) const;

    const PretendedCard card_;
    const LlamaConfig& model_;
    const SlotBytes& slots_;
    const offload::Effort effort_;          // of the largest micro-batch
    std::vector<offload::Demand> demands_;  // by op
    // When the lane's last op ended; by LaneKind, each used by its lane's thread alone.
    std::array<int64_t, offload::lane_kind_count> free_at_ns_ = {};
};

}  // namespace headrace::engine
