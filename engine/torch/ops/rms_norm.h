// RMSNorm as transformers computes it: in fp32 up to x / rms(x), rounded to the compute dtype, then
// times the weight in the compute dtype.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/gradient.h"

namespace headrace::engine {

struct NormForward {
    at::Tensor y;            // (tokens, hidden), compute dtype
    at::Tensor inverse_rms;  // (tokens, 1), fp32
};
NormForward rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Returns d loss / d x; the weight's gradient goes to `sink`.
at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& inverse_rms, const at::Tensor& weight,
                             const GradientSink& sink);

// The same as one node of autograd. `sink` is needed only where a graph is recorded.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                    const GradientSink* sink);

}  // namespace headrace::engine
