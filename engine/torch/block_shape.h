// The shape of a transformer block, and the bytes of what it keeps for its backward: arithmetic
// alone, without torch, so that a plan needs none. What is done with it: engine/torch/block.h.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/models/llama.h"
#include "engine/torch/ops/attention_shape.h"
#include "offload/dtype.h"

namespace headrace::engine {

struct BlockShape {
    AttentionShape attention;
    int64_t hidden_size = 0;
    int64_t intermediate_size = 0;
    offload::Dtype storage = offload::Dtype::fp32;

    int64_t token_count() const { return attention.row_count * attention.column_count; }
};

// A block of the model, all of which have one shape, for a micro-batch of so many tokens; both are
// at least 1 (CHECK).
BlockShape block_shape_of(const LlamaConfig& config, offload::Dtype dtype, int64_t row_count,
                          int64_t column_count);

// A tensor of what a block keeps.
struct KeptExtent {
    std::vector<int64_t> sizes;
    offload::Dtype dtype = offload::Dtype::fp32;

    // Up to where the next one begins.
    uint64_t size_bytes() const;
};

// Query, key, value, attended, log_sum, middle, gate, up: as they lie one behind the other.
std::vector<KeptExtent> kept_extents_of(const BlockShape& shape);

// Bytes of all of them, a multiple of offload::page_bytes.
uint64_t kept_bytes_of(const BlockShape& shape);

}  // namespace headrace::engine
