// Rotary positions (kernels/host/rope.h) as its rows see them. Plain structs only, as in
// kernels/host/reduce_block.h.
#pragma once

#include <cstdint>

#include "offload/dtype.h"

namespace headrace::kernels {

struct RopeOperands {
    void* x = nullptr;  // (tokens, heads * 2 * pairs)
    offload::Dtype dtype = offload::Dtype::fp32;
    int64_t head_count = 0;
    int64_t pair_count = 0;    // half of a head
    int64_t column_count = 0;  // token t stands at column t % column_count
    // (tokens): the column where a token's sample begins, for samples packed into rows; null: 0.
    const int32_t* sample_starts = nullptr;
    const float* cosine = nullptr;  // (columns, pairs)
    const float* sine = nullptr;    // the same
    bool is_back = false;
};

void turn_tokens_scalar(const RopeOperands& operands, int64_t first_token, int64_t last_token);
void turn_tokens_avx2(const RopeOperands& operands, int64_t first_token, int64_t last_token);

}  // namespace headrace::kernels
