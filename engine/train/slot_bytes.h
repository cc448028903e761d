// SlotBytes: the memory behind (slot, value) pairs: the slabs of gpu and ram, and which bytes of
// them a value has. The only place that turns slots into addresses.
//
// Micro-batches may be shorter than the one that slots are laid out for: what there is of their
// activations and kept values is a prefix.
#pragma once

#include <cstddef>
#include <span>

#include "engine/data/batch_plan.h"
#include "engine/torch/llama.h"
#include "offload/schedule.h"

namespace headrace::engine {

class SlotBytes {
  public:
    struct Slabs {
        std::span<std::byte> gpu;
        std::span<std::byte> ram;
    };
    // Config and compute outlive it; compute only says how much is kept.
    SlotBytes(const LlamaConfig& config, const LlamaCompute& compute, Slabs slabs)
        : config_(config), compute_(compute), slabs_(slabs) {}

    // The slots of all lists of one engine are the same; the values are of this list.
    void use(const offload::Schedule& schedule) { schedule_ = &schedule; }
    const offload::Schedule& schedule() const;

    const Slabs& slabs() const { return slabs_; }
    // The bytes of a gpu or ram slot.
    std::span<std::byte> bytes_of_slot(offload::SlotId slot) const;
    // The bytes that a value really has in a period that computes on this batch.
    std::span<std::byte> value_bytes(const offload::Access& access, const StepBatch& batch) const;
    // The side-by-side bytes of one layer's parts in an op's accesses: its flat run.
    std::span<std::byte> run_bytes(const offload::Op& op, offload::Kind kind, offload::Mode mode,
                                   uint32_t layer) const;
    std::span<std::byte> workspace() const;

  private:
    const LlamaConfig& config_;
    const LlamaCompute& compute_;
    const Slabs slabs_;
    const offload::Schedule* schedule_ = nullptr;
};

// The first access of this mode to a value that is no control.
const offload::Access& data_access(const offload::Op& op, offload::Mode mode);

}  // namespace headrace::engine
