#include "engine/torch/ops/output.h"

#include "engine/torch/ops/cross_entropy.h"
#include "engine/torch/ops/rms_norm.h"

namespace headrace::engine {

namespace {

at::Tensor project(const at::Tensor& normed, const OutputWeights& weights) {
    return multiply(normed, weights.projection, weights.path).to(at::kFloat);
}

}  // namespace

at::Tensor logits_of(const at::Tensor& hidden, const OutputWeights& weights) {
    CHECK_EQ(hidden.dim(), 2);
    return project(rms_norm_forward(hidden, weights.norm, weights.epsilon).y, weights);
}

at::Tensor output_backward(const at::Tensor& hidden, const OutputWeights& weights,
                           const OutputTargets& targets, const OutputSinks& sinks) {
    CHECK_EQ(hidden.dim(), 2);
    CHECK_EQ(hidden.size(0), static_cast<int64_t>(targets.tokens.size()));
    const NormForward normed = rms_norm_forward(hidden, weights.norm, weights.epsilon);
    at::Tensor logits = project(normed.y, weights);  // (rows, vocabulary), fp32
    cross_entropy(logits, targets.tokens, targets.scales, targets.losses);
    logits = logits.to(hidden.scalar_type());  // now their gradient, rounded
    const at::Tensor d_normed =
        multiply_backward(logits, normed.y, weights.projection, sinks.projection, weights.path);
    return rms_norm_backward(d_normed, hidden, normed.inverse_rms, weights.norm, sinks.norm);
}

void output_loss(const at::Tensor& hidden, const OutputWeights& weights,
                 const OutputTargets& targets) {
    CHECK_EQ(hidden.size(0), static_cast<int64_t>(targets.tokens.size()));
    cross_entropy(logits_of(hidden, weights), targets.tokens, targets.scales, targets.losses);
}

}  // namespace headrace::engine
