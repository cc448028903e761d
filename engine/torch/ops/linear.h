// A linear layer without bias, as one node of autograd: the weight's gradient leaves by the sink.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/gradient.h"
#include "engine/torch/ops/matmul.h"

namespace headrace::engine {

// (tokens, inputs) -> (tokens, outputs). `sink` is needed only where a graph is recorded; it must
// outlive the graph.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const GradientSink* sink,
                  MatmulPath path);

}  // namespace headrace::engine
