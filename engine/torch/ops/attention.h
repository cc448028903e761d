// Causal grouped-query attention with rotary positions, as one node of autograd. Queries, keys and
// values are rotated and attended in fp32 for every compute dtype (torch's bf16 attention on a CPU
// is no faster), and the result is rounded once. Rows do not see each other; padding on the right
// is never seen by what stands left of it.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "engine/torch/ops/rope.h"

namespace headrace::engine {

struct AttentionShape {
    int64_t row_count = 0;
    int64_t column_count = 0;
    int64_t head_count = 0;
    int64_t kv_head_count = 0;
    int64_t head_dim = 0;
};

// q: (tokens, heads * head_dim), k and v: (tokens, kv_heads * head_dim) -> as q.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const RopeTable& table, const AttentionShape& shape);

}  // namespace headrace::engine
