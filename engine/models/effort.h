// The arithmetic of a Llama model: floating-point operations of each layer for one micro-batch, a
// multiply and an add counting two. For P parameters in matrices and T tokens a block's forward is
// 2 P T, its backward 4 P T, and what backward recomputes is forward without the last of its matrix
// products; causal attention adds half of the full square (row r of a sample sees
// r keys): 2 S^2 per head, head dimension and sample in forward, 5/2 of that in backward (five
// products instead of two). Norms, rotations and softmax are not counted: a few percent, bound by
// memory. Where a window limits what a token sees, attention is counted inside it.
#pragma once

#include <cstdint>

#include "engine/models/llama.h"
#include "offload/effort.h"

namespace headrace::engine {

// Of `row_count` samples of `column_count` tokens each, all of them trained.
offload::Effort effort_of(const LlamaConfig& config, int64_t row_count, int64_t column_count);

}  // namespace headrace::engine
