// GradientSink: where the gradient of one tensor goes. A gradient is rounded to the compute dtype
// once, element by element, and stored into or added to its place in the layer's fp32 accumulator;
// it never exists as a whole: products deliver it in tiles of rows.
// The sink does not own the accumulator; it outlives the call that fills it.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <cstdint>
#include <span>

#include "engine/torch/llama.h"
#include "kernels/host/row_operands.h"
#include "offload/dtype.h"

namespace headrace::engine {

class GradientSink {
  public:
    // `accumulator` is the tensor's piece of the layer's run. `mode` is what the first and only
    // delivery of each element does with what the accumulator held.
    GradientSink(std::span<float> accumulator, Accumulate mode, offload::Dtype dtype)
        : accumulator_(accumulator), mode_(mode), dtype_(dtype) {}

    // Delivers elements [first_element, first_element + tile.numel()). The tile is contiguous, in
    // fp32 (rounded here to the compute dtype) or already in the compute dtype.
    void add(uint64_t first_element, const at::Tensor& tile) const;

    uint64_t element_count() const { return accumulator_.size(); }

  private:
    std::span<float> accumulator_;
    Accumulate mode_;
    offload::Dtype dtype_;
};

// Adds to, or stores into, the accumulator elements of `gradient`, which are fp32 and rounded to
// `dtype` on the way, or of `dtype` already. One pass over memory, on torch's threads.
struct Gradient {
    const void* elements = nullptr;
    kernels::Element element = kernels::Element::fp32;
};
void add_gradient(const Gradient& gradient, offload::Dtype dtype, std::span<float> accumulator,
                  Accumulate mode);

}  // namespace headrace::engine
