// The three products of a linear layer, and the only place that multiplies matrices. Weights are
// (outputs, inputs), as in checkpoints; no transpose is ever copied.
//
// MatmulPath::native multiplies in the tensors' own dtype. Where the CPU has no bf16 arithmetic
// torch's bf16 product runs at a seventh of its fp32 speed (measured: 17 against 140 GF/s on a
// Zen CPU with AVX2), so MatmulPath::rounded_fp32 widens the operands, multiplies in fp32 and
// rounds the result once. Weights are widened in tiles of matmul_tile_rows rows, a constant: tiles
// decide the order of sums in the input gradient, hence its bits.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/gradient.h"
#include "offload/dtype.h"

namespace headrace::engine {

enum class MatmulPath : uint8_t { native, rounded_fp32 };

inline constexpr int64_t matmul_tile_rows = 4096;

// What this CPU is best at for `dtype`.
MatmulPath matmul_path(offload::Dtype dtype);

// (tokens, inputs) x (outputs, inputs)^T -> (tokens, outputs), in the dtype of x.
at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, MatmulPath path);

// Returns d loss / d x for dy = d loss / d multiply(x, weight), and delivers the weight's gradient
// to `sink`, tile by tile.
at::Tensor multiply_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                             const GradientSink& sink, MatmulPath path);

}  // namespace headrace::engine
