// The head of a few tokens: final norm, output projection, cross entropy, and the way back. The
// caller cuts the tokens into chunks, so that logits exist for one chunk at a time.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/gradient.h"
#include "engine/torch/ops/cross_entropy.h"
#include "engine/torch/ops/matmul.h"

namespace headrace::engine {

struct OutputWeights {
    at::Tensor norm;        // (hidden)
    at::Tensor projection;  // (vocabulary, hidden)
    double epsilon = 0;
    Kernels kernels = Kernels::fused;
};

struct OutputSinks {
    GradientSink norm;
    GradientSink projection;
};

// hidden: (rows, hidden) in storage -> (rows, vocabulary) in work.
at::Tensor logits_of(const at::Tensor& hidden, const OutputWeights& weights);

// Fills targets.losses; returns d loss / d hidden and delivers the weights' gradients.
at::Tensor output_backward(const at::Tensor& hidden, const OutputWeights& weights,
                           const OutputTargets& targets, const OutputSinks& sinks);

// Fills targets.losses only.
void output_loss(const at::Tensor& hidden, const OutputWeights& weights,
                 const OutputTargets& targets);

}  // namespace headrace::engine
