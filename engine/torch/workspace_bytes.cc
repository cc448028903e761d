#include "engine/torch/workspace_bytes.h"

#include <algorithm>

#include "offload/units.h"

namespace headrace::engine {

namespace {

// Attention keeps per thread the scores and their gradient of a tile of at most 256 queries by 512
// keys, fp32.
uint64_t attention_scratch_bytes(const WorkspaceShape& shape) {
    const auto columns = static_cast<uint64_t>(shape.column_count);
    return static_cast<uint64_t>(shape.thread_count) * 8 * std::min<uint64_t>(columns, 256) *
           std::min<uint64_t>(columns, 512);
}

// Scalars, row statistics, rope angles of short rows.
constexpr uint64_t small_tensors_bytes = 64 * offload::kib;
// Holes: a graph's tensors are not given back in the order of a stack. Measured: up to 18% in a
// block, 2% in the head.
constexpr uint64_t block_hole_percent = 20;
constexpr uint64_t head_hole_percent = 5;

// Sizes in elements; a letter times element bytes is a tensor of the shape named beside it.
struct Terms {
    uint64_t tokens;
    uint64_t hidden;   // tokens * hidden
    uint64_t queries;  // tokens * heads * head_dim
    uint64_t keys;     // tokens * kv_heads * head_dim
    uint64_t inner;    // tokens * intermediate
    uint64_t element;  // bytes of the compute dtype
    bool rounded;      // MatmulPath::rounded_fp32
};

struct Product {
    uint64_t row_count;
    uint64_t input_count;
    uint64_t output_count;
};

// multiply_backward: the input gradient, and per tile of weight rows the tile or its gradient; the
// rounded path widens x, dy and the tile too.
uint64_t product_backward_bytes(const Terms& t, const Product& product) {
    const uint64_t tile = std::min<uint64_t>(product.output_count, matmul_tile_rows);
    const uint64_t x = product.row_count * product.input_count;
    if (!t.rounded) return t.element * (x + tile * product.input_count);
    return 4 * (2 * x + product.row_count * tile + tile * product.input_count);
}

// Kept by the graph of the attention half when it is done: normed, rotated queries and keys,
// values, attended, its rounded copy, log-sum-exp, the half's output.
uint64_t attention_graph_bytes(const Terms& t, const LlamaConfig& config) {
    const uint64_t rounded_copy = t.element == 4 ? 0 : t.element * t.queries;
    const uint64_t row_statistics = 4 * t.tokens * (config.head_count + 2);
    return 2 * t.element * t.hidden + 4 * (2 * t.queries + 2 * t.keys) + rounded_copy +
           row_statistics;
}

// The worst moments of a block's backward, one per node of its graph, in the order they come. The
// output of the recomputed block (`kept`) lives all along.
uint64_t block_backward_bytes(const Terms& t, const LlamaConfig& config,
                              const WorkspaceShape& shape) {
    const auto hidden = static_cast<uint64_t>(config.hidden_size);
    const auto inner = static_cast<uint64_t>(config.intermediate_size);
    const auto queries = static_cast<uint64_t>(config.head_count * config.head_dim);
    const uint64_t e = t.element;
    const uint64_t wide_copy = e == 4 ? 0 : 4;
    const uint64_t kept = attention_graph_bytes(t, config) + e * t.hidden;
    const uint64_t down =
        kept + e * (t.hidden + 3 * t.inner) + product_backward_bytes(t, {t.tokens, inner, hidden});
    const uint64_t swiglu = kept + e * (t.hidden + 5 * t.inner);
    const uint64_t gate_up = kept + e * (2 * t.hidden + 2 * t.inner) +
                             product_backward_bytes(t, {t.tokens, hidden, inner});
    const uint64_t norm = kept + 2 * e * t.hidden + (12 + wide_copy) * t.hidden;
    const uint64_t out =
        kept + e * t.hidden + product_backward_bytes(t, {t.tokens, queries, hidden});
    const uint64_t attention = kept + e * (t.hidden + 2 * t.queries + 2 * t.keys) +
                               wide_copy * t.queries + 8 * t.queries + 8 * t.keys +
                               attention_scratch_bytes(shape);
    return std::max({down, swiglu, gate_up, norm, out, attention});
}

// A chunk of the head: logits in fp32 and in the compute dtype, then the way back from them.
uint64_t head_bytes(const Terms& t, const LlamaConfig& config) {
    const auto hidden = static_cast<uint64_t>(config.hidden_size);
    const auto words = static_cast<uint64_t>(config.vocabulary_size);
    const uint64_t rows = std::min<uint64_t>(static_cast<uint64_t>(head_chunk_tokens(config)),
                                             offload::align_up(t.tokens, 16));
    const uint64_t kept = 3 * t.element * rows * hidden;
    const uint64_t rounded_copy = t.element == 4 ? 0 : t.element;
    const uint64_t loss = (4 + rounded_copy) * rows * words;
    const uint64_t backward =
        t.element * rows * words + product_backward_bytes(t, {rows, hidden, words});
    const uint64_t norm = t.element * rows * words + 20 * rows * hidden;
    return kept + std::max({loss, backward, norm});
}

}  // namespace

uint64_t workspace_bytes_of(const LlamaConfig& config, offload::Dtype dtype, MatmulPath path,
                            const WorkspaceShape& shape) {
    CHECK_GT(shape.row_count, 0);
    CHECK_GT(shape.column_count, 0);
    CHECK_GT(shape.thread_count, 0);
    const auto tokens = static_cast<uint64_t>(shape.row_count * shape.column_count);
    const Terms terms{
        .tokens = tokens,
        .hidden = tokens * static_cast<uint64_t>(config.hidden_size),
        .queries = tokens * static_cast<uint64_t>(config.head_count * config.head_dim),
        .keys = tokens * static_cast<uint64_t>(config.kv_head_count * config.head_dim),
        .inner = tokens * static_cast<uint64_t>(config.intermediate_size),
        .element = offload::element_bytes(dtype),
        .rounded = path == MatmulPath::rounded_fp32};
    const uint64_t rope_bytes =
        8 * static_cast<uint64_t>(shape.column_count) * static_cast<uint64_t>(config.head_dim);
    const uint64_t block = rope_bytes + block_backward_bytes(terms, config, shape);
    const uint64_t head = head_bytes(terms, config);
    const uint64_t needed_bytes =
        std::max(block + block / 100 * block_hole_percent, head + head / 100 * head_hole_percent);
    return offload::align_up(needed_bytes + small_tensors_bytes, offload::page_bytes);
}

}  // namespace headrace::engine
