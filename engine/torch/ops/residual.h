// The sum that joins a half of a block to what it was given.
#pragma once

#include "engine/torch/torch.h"

namespace headrace::engine {

// out = x + y, rounded once. All (tokens, hidden); x and out in storage, y in work.
void add_residual(const at::Tensor& x, const at::Tensor& y, const at::Tensor& out);

}  // namespace headrace::engine
