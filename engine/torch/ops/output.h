// The head of a few tokens: final norm, output projection, cross entropy, and the way back. The
// caller cuts the tokens into chunks, so that logits exist for one chunk at a time.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <cstdint>
#include <span>

#include "engine/torch/gradient.h"
#include "engine/torch/ops/matmul.h"

namespace headrace::engine {

struct OutputWeights {
    at::Tensor norm;        // (hidden)
    at::Tensor projection;  // (vocabulary, hidden)
    double epsilon = 0;
};

struct OutputSinks {
    GradientSink norm;
    GradientSink projection;
};

// What each token of a chunk must predict and how much it counts.
struct OutputTargets {
    std::span<const int32_t> tokens;
    std::span<const float> scales;  // d loss / d (-log p)
    std::span<double> losses;       // out: -log p
};

// hidden: (rows, hidden) in storage -> (rows, vocabulary) in fp32.
at::Tensor logits_of(const at::Tensor& hidden, const OutputWeights& weights);

// Fills targets.losses; returns d loss / d hidden and delivers the weights' gradients.
at::Tensor output_backward(const at::Tensor& hidden, const OutputWeights& weights,
                           const OutputTargets& targets, const OutputSinks& sinks);

// Fills targets.losses only.
void output_loss(const at::Tensor& hidden, const OutputWeights& weights,
                 const OutputTargets& targets);

}  // namespace headrace::engine
