// The three products of a linear layer, and the only place that multiplies matrices. Weights are
// (outputs, inputs), as in checkpoints; no transpose is ever copied.
//
// *storage* is the dtype of weights and of what is kept, *work* the dtype that is multiplied.
// MatmulPath::native multiplies in storage. Where the CPU has no such arithmetic torch's bf16
// product runs at a seventh of its fp32 speed (measured: 17 against 140 GF/s on a Zen CPU with
// AVX2), so MatmulPath::rounded_fp32 works in fp32: activations stay in fp32 from one product to
// the next, weights are widened in tiles of rows, and results are rounded where they are kept.
// In fp32 tiles decide the order of sums in the input gradient, hence its bits: their size is a
// function of the weight's shape alone.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/gradient.h"
#include "engine/torch/ops/matmul_sizes.h"

namespace headrace::engine {

// The work dtype for `storage`.
at::ScalarType work_type(at::ScalarType storage);

// x itself where it is in the work dtype already, else a copy that is.
at::Tensor as_work(const at::Tensor& x);

int64_t matmul_scratch_elements(int64_t token_count, int64_t output_count, int64_t input_count,
                                at::ScalarType storage);

// y = x weight^T. x: (tokens, inputs) in work; weight: (outputs, inputs) in storage; y: (tokens,
// outputs), contiguous, in work or in storage; scratch: one dimension, in work.
void multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y,
              const at::Tensor& scratch);

// What becomes of dx.
enum class InputGradient : uint8_t { store, add };

// dx (+)= dy weight, and the weight's gradient dy^T x to `sink`, tile by tile. dy: (tokens,
// outputs), x and dx: (tokens, inputs), all in work.
struct ProductBackward {
    const at::Tensor& dy;
    const at::Tensor& x;
    const at::Tensor& weight;
    const at::Tensor& dx;
    InputGradient mode = InputGradient::store;
};
void multiply_backward(const ProductBackward& product, const GradientSink& sink,
                       const at::Tensor& scratch);

}  // namespace headrace::engine
