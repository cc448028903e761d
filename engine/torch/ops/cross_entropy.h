// Cross entropy of rows of logits and its gradient, in place.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <cstdint>
#include <span>

#include "engine/torch/ops/kernels.h"

namespace headrace::engine {

// What each row must predict and how much it counts.
struct OutputTargets {
    std::span<const int32_t> tokens;
    std::span<const float> scales;  // d loss / d (-log p)
    std::span<double> losses;       // out: -log p
};

// logits: (rows, vocabulary), contiguous, any float dtype; replaced by d (sum of scales[r] *
// losses[r]) / d logits, computed in fp32 and rounded once.
void cross_entropy(const at::Tensor& logits, const OutputTargets& targets, Kernels kernels);

}  // namespace headrace::engine
