// RMSNorm as transformers computes it: in fp32 up to x / rms(x), rounded to the work dtype, then
// times the weight. Storage and work: engine/torch/block.h.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/gradient.h"
#include "engine/torch/ops/kernels.h"

namespace headrace::engine {

struct Norm {
    at::Tensor y;            // (tokens, hidden), work
    at::Tensor inverse_rms;  // (tokens, 1), fp32
};
// x: (tokens, hidden), weight: (hidden), both in storage.
Norm rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, Kernels kernels);

// Adds d loss / d x to `sum`, for dy = d loss / d y, both (tokens, hidden) in work; the weight's
// gradient, summed up in blocks of norm_block_rows (ops/rows.h), goes to `sink`.
struct NormBackward {
    const at::Tensor& dy;
    const at::Tensor& x;
    const at::Tensor& inverse_rms;
    const at::Tensor& weight;
    const at::Tensor& sum;
};
void rms_norm_backward(const NormBackward& norm, const GradientSink& sink, Kernels kernels);

}  // namespace headrace::engine
