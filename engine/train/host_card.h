// HostCard: the device host. Computes with torch and kernels/host, inside the gpu slab.
#pragma once

#include "engine/train/card.h"
#include "engine/train/slot_bytes.h"
#include "kernels/host/reduce.h"

namespace headrace::engine {

struct HostCardParts {
    const LlamaConfig* config = nullptr;
    const LlamaCompute* compute = nullptr;
    const SlotBytes* slots = nullptr;  // is told of lists by its owner
    const kernels::ReduceRow* reduce_row = nullptr;
    int compute_threads = 1;
};

class HostCard final : public Card {
  public:
    explicit HostCard(HostCardParts parts);

    void use(const offload::Schedule&) override {}
    void start_lane() override;
    offload::Status execute(const CardOp& call) override;
    offload::Status try_shape(int64_t row_count, int64_t column_count) override;
    bool has_memory() const override { return true; }

  private:
    using Op = offload::Op;
    std::span<float> accumulator(const Op& op, uint32_t layer) const;
    std::span<std::byte> hidden_bytes(const Op& op, offload::Kind kind, offload::Mode mode,
                                      const MicroBatch& batch) const;
    std::span<std::byte> kept_bytes(const Op& op, offload::Mode mode,
                                    const MicroBatch& batch) const;
    offload::Status compute(const Op& op, const CardOp& call) const;
    void forward(const Op& op, const MicroBatch& batch) const;
    void backward(const Op& op, const MicroBatch& batch) const;
    HeadResult head(const Op& op, const MicroBatch& batch, float loss_scale) const;
    NormRecord reduce(const Op& op) const;

    const HostCardParts parts_;
};

}  // namespace headrace::engine
