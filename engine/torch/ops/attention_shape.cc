#include "engine/torch/ops/attention_shape.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::engine {

namespace {

// fp32 copies of operands and results, and per thread the scores and their gradient of a tile of
// at most 256 queries by 512 keys, fp32.
uint64_t reference_scratch_bytes(const AttentionShape& shape, int64_t element_bytes,
                                 int64_t thread_count) {
    const auto tokens = static_cast<uint64_t>(shape.row_count * shape.column_count);
    const auto queries = tokens * static_cast<uint64_t>(shape.head_count * shape.head_dim);
    const auto keys = tokens * static_cast<uint64_t>(shape.kv_head_count * shape.head_dim);
    const auto columns = static_cast<uint64_t>(shape.column_count);
    const uint64_t tile = std::min<uint64_t>(columns, 256) * std::min<uint64_t>(columns, 512);
    const uint64_t copies = element_bytes == 4 ? 0 : 4 * (3 * queries + 2 * keys);
    const uint64_t results = 4 * (queries + 2 * keys);
    const uint64_t statistics = 8 * tokens * static_cast<uint64_t>(shape.head_count);
    return copies + results + statistics + static_cast<uint64_t>(thread_count) * 8 * tile;
}

}  // namespace

kernels::AttentionSizes sizes_of(const AttentionShape& shape) {
    return {.row_count = shape.row_count,
            .column_count = shape.column_count,
            .head_count = shape.head_count,
            .kv_head_count = shape.kv_head_count,
            .head_dim = shape.head_dim};
}

AttentionScratch attention_scratch(const AttentionShape& shape, int64_t element_bytes,
                                   int64_t thread_count, Kernels choice) {
    CHECK_GT(thread_count, 0);
    if (choice == Kernels::fused) {
        const kernels::AttentionSizes sizes = sizes_of(shape);
        const auto pass_bytes = [&](kernels::AttentionPass pass) {
            return sizeof(float) * (kernels::attention_shared_floats(pass, sizes) +
                                    static_cast<uint64_t>(thread_count) *
                                        kernels::attention_worker_floats(pass, sizes));
        };
        return {.forward_bytes = pass_bytes(kernels::AttentionPass::forward),
                .backward_bytes = pass_bytes(kernels::AttentionPass::backward)};
    }
    const uint64_t either_bytes = reference_scratch_bytes(shape, element_bytes, thread_count);
    return {.forward_bytes = either_bytes, .backward_bytes = either_bytes};
}

}  // namespace headrace::engine
