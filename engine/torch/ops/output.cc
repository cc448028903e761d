#include "engine/torch/ops/output.h"

#include "engine/torch/ops/rms_norm.h"
#include "engine/torch/ops/rows.h"

namespace headrace::engine {

namespace {

at::Tensor make_scratch(int64_t row_count, const at::Tensor& projection) {
    const int64_t elements = matmul_scratch_elements(row_count, projection.size(0),
                                                     projection.size(1), projection.scalar_type());
    return at::empty({elements}, at::TensorOptions().dtype(work_type(projection.scalar_type())));
}

// (rows, hidden) -> (rows, vocabulary), work
at::Tensor project(const at::Tensor& normed, const at::Tensor& projection,
                   const at::Tensor& scratch) {
    at::Tensor logits = at::empty({normed.size(0), projection.size(0)}, normed.options());
    multiply(normed, projection, logits, scratch);
    return logits;
}

}  // namespace

at::Tensor logits_of(const at::Tensor& hidden, const OutputWeights& weights) {
    CHECK_EQ(hidden.dim(), 2);
    const Norm normed = rms_norm(hidden, weights.norm, weights.epsilon, weights.kernels);
    const at::Tensor scratch = make_scratch(hidden.size(0), weights.projection);
    return project(normed.y, weights.projection, scratch);
}

at::Tensor output_backward(const at::Tensor& hidden, const OutputWeights& weights,
                           const OutputTargets& targets, const OutputSinks& sinks) {
    CHECK_EQ(hidden.dim(), 2);
    CHECK_EQ(hidden.size(0), static_cast<int64_t>(targets.tokens.size()));
    const Norm normed = rms_norm(hidden, weights.norm, weights.epsilon, weights.kernels);
    const at::Tensor d_normed = at::empty_like(normed.y);  // (rows, hidden)
    {
        const at::Tensor scratch = make_scratch(hidden.size(0), weights.projection);
        const at::Tensor logits = project(normed.y, weights.projection, scratch);
        cross_entropy(logits, targets, weights.kernels);  // now their gradient
        multiply_backward(
            {.dy = logits, .x = normed.y, .weight = weights.projection, .dx = d_normed},
            sinks.projection, scratch);
    }
    const at::Tensor d_hidden = at::zeros_like(d_normed);
    rms_norm_backward({.dy = d_normed,
                       .x = hidden,
                       .inverse_rms = normed.inverse_rms,
                       .weight = weights.norm,
                       .sum = d_hidden},
                      sinks.norm, weights.kernels);
    return converted(d_hidden, hidden.scalar_type());
}

void output_loss(const at::Tensor& hidden, const OutputWeights& weights,
                 const OutputTargets& targets) {
    CHECK_EQ(hidden.size(0), static_cast<int64_t>(targets.tokens.size()));
    cross_entropy(logits_of(hidden, weights), targets, weights.kernels);
}

}  // namespace headrace::engine
