// SwiGLU: silu(gate) * up, each rounded to the compute dtype, as one node of autograd that keeps
// its two inputs only.
#pragma once

#include "engine/torch/torch.h"

namespace headrace::engine {

// gate, up: (tokens, intermediate) -> the same.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace headrace::engine
