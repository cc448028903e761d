// SwiGLU: silu(gate) * up. Storage and work: engine/torch/block.h.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/ops/kernels.h"

namespace headrace::engine {

// gate, up: (tokens, intermediate) in storage -> the same in work.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Kernels kernels);

// d_product, in work, becomes the gradient of gate; d_up, in work, is overwritten with that of up.
void swiglu_backward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& d_product,
                     const at::Tensor& d_up, Kernels kernels);

}  // namespace headrace::engine
