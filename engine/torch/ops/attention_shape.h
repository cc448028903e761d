// The shape of one attention, and the memory it takes while it computes: arithmetic alone, without
// torch. What is done with it: ops/attention.h.
#pragma once

#include <cstdint>
#include <span>

#include "engine/torch/ops/kernels.h"
#include "kernels/host/attention.h"

namespace headrace::engine {

// (tokens): the column at which the sample of each token begins; empty: every row is one sample.
using SampleStarts = std::span<const int32_t>;

struct AttentionShape {
    int64_t row_count = 0;
    int64_t column_count = 0;
    int64_t head_count = 0;
    int64_t kv_head_count = 0;
    int64_t head_dim = 0;
    SampleStarts starts = {};  // what a token sees begins there
};

kernels::AttentionSizes sizes_of(const AttentionShape& shape);

// What forward and backward take from torch's allocator, at most, beside operands and outputs.
struct AttentionScratch {
    uint64_t forward_bytes = 0;
    uint64_t backward_bytes = 0;
};
AttentionScratch attention_scratch(const AttentionShape& shape, int64_t element_bytes,
                                   int64_t thread_count, Kernels choice);

}  // namespace headrace::engine
