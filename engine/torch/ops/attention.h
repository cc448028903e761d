// Causal grouped-query attention over rows of equal length. Rows do not see each other; padding on
// the right is never seen by what stands left of it. Where samples are packed into a row, they do
// not see each other either. Kernels::fused is kernels/host/attention.h
// over torch's threads, with the same bits on any number of them; Kernels::reference is torch's
// flash attention, in fp32 for every compute dtype.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/ops/attention_shape.h"
#include "engine/torch/ops/rope.h"

namespace headrace::engine {

// What attention gives, and what its backward needs beside its operands.
struct AttentionOut {
    at::Tensor attended;  // (tokens, heads * head_dim), compute dtype
    at::Tensor log_sum;   // (rows, heads, columns), fp32: log of the sum of exp(score)
};

struct AttentionGradients {
    at::Tensor dq;  // as q, compute dtype; still turned
    at::Tensor dk;  // as k
    at::Tensor dv;  // as v
};

// Plain functions, without a graph. q: (tokens, heads * head_dim), k and v: (tokens, kv_heads *
// head_dim), contiguous, of one dtype, q and k already turned. Outputs are contiguous and do not
// overlap the operands.
AttentionOut attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionShape& shape, Kernels choice = Kernels::fused);
void attention_forward_into(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionShape& shape, Kernels choice, const AttentionOut& out);

// d_attended: as attended. `forward` is what attention_forward gave for the same operands.
AttentionGradients attention_backward(const at::Tensor& d_attended, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const AttentionOut& forward, const AttentionShape& shape,
                                      Kernels choice = Kernels::fused);
void attention_backward_into(const at::Tensor& d_attended, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOut& forward,
                             const AttentionShape& shape, Kernels choice,
                             const AttentionGradients& gradients);

}  // namespace headrace::engine
