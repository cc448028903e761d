#include "engine/torch/block_shape.h"

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Dtype;

namespace {

constexpr uint64_t tensor_alignment_bytes = 64;

}  // namespace

BlockShape block_shape_of(const LlamaConfig& config, Dtype dtype, int64_t row_count,
                          int64_t column_count) {
    CHECK_GT(row_count, 0);
    CHECK_GT(column_count, 0);
    return {.attention = {.row_count = row_count,
                          .column_count = column_count,
                          .head_count = config.head_count,
                          .kv_head_count = config.kv_head_count,
                          .head_dim = config.head_dim},
            .hidden_size = config.hidden_size,
            .intermediate_size = config.intermediate_size,
            .storage = dtype};
}

uint64_t KeptExtent::size_bytes() const {
    uint64_t element_count = 1;
    for (const int64_t one : sizes) {
        CHECK_GT(one, 0);
        element_count *= static_cast<uint64_t>(one);
    }
    return offload::align_up(bytes_of(dtype, element_count), tensor_alignment_bytes);
}

std::vector<KeptExtent> kept_extents_of(const BlockShape& shape) {
    const AttentionShape& attention = shape.attention;
    const int64_t tokens = shape.token_count();
    const int64_t queries = attention.head_count * attention.head_dim;
    const int64_t keys = attention.kv_head_count * attention.head_dim;
    return {
        {{tokens, queries}, shape.storage},
        {{tokens, keys}, shape.storage},
        {{tokens, keys}, shape.storage},
        {{tokens, queries}, shape.storage},
        {{attention.row_count, attention.head_count, attention.column_count}, Dtype::fp32},
        {{tokens, shape.hidden_size}, shape.storage},
        {{tokens, shape.intermediate_size}, shape.storage},
        {{tokens, shape.intermediate_size}, shape.storage},
    };
}

uint64_t kept_bytes_of(const BlockShape& shape) {
    uint64_t size_bytes = 0;
    for (const KeptExtent& extent : kept_extents_of(shape)) size_bytes += extent.size_bytes();
    return offload::align_up(size_bytes, offload::page_bytes);
}

}  // namespace headrace::engine
