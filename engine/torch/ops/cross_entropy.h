// Cross entropy of rows of logits and its gradient, in place.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <cstdint>
#include <span>

namespace headrace::engine {

// logits: (rows, vocabulary) fp32, contiguous. Replaced by d (sum of scales[r] * loss[r]) /
// d logits. losses[r] = -log p(targets[r]), which must be a token.
void cross_entropy(const at::Tensor& logits, std::span<const int32_t> targets,
                   std::span<const float> scales, std::span<double> losses);

}  // namespace headrace::engine
