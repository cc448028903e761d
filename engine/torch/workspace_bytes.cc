#include "engine/torch/workspace_bytes.h"

#include <algorithm>

#include "engine/torch/ops/matmul_sizes.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

namespace {

// Scalars, row statistics, rope angles of short rows.
constexpr uint64_t small_tensors_bytes = 64 * offload::kib;
// Holes in a block's: tensors are not given back in the order of a stack. The head's are counted.
constexpr uint64_t hole_percent = 2;

// Sizes in elements; a letter times element bytes is a tensor of the shape named beside it.
struct Terms {
    uint64_t tokens;
    uint64_t hidden;     // tokens * hidden
    uint64_t queries;    // tokens * heads * head_dim
    uint64_t keys;       // tokens * kv_heads * head_dim
    uint64_t inner;      // tokens * intermediate
    uint64_t storage;    // bytes of an element in storage
    uint64_t work;       // bytes of an element in work
    uint64_t wide_copy;  // bytes of an element of a copy in work; 0 where storage is work
    bool reference;      // Kernels::reference
};

uint64_t scratch_bytes(const Terms& t, const WorkspaceShape& shape, uint64_t rows, uint64_t outputs,
                       uint64_t inputs) {
    return t.work * static_cast<uint64_t>(matmul_scratch_elements(
                        static_cast<int64_t>(rows), static_cast<int64_t>(outputs),
                        static_cast<int64_t>(inputs), shape.block.storage, shape.work));
}

// A norm's backward: what the reference kernels write between the steps.
uint64_t norm_backward_bytes(const Terms& t, uint64_t elements) {
    return t.reference ? 6 * 4 * elements : elements / 8;
}

// The worst moments of a block that recomputes, in the order they come.
uint64_t block_bytes(const Terms& t, const LlamaConfig& config, const WorkspaceShape& shape) {
    const auto hidden = static_cast<uint64_t>(config.hidden_size);
    const auto inner = static_cast<uint64_t>(config.intermediate_size);
    const auto queries = static_cast<uint64_t>(config.head_count * config.head_dim);
    const uint64_t element = t.storage;
    const uint64_t statistics = 4 * t.tokens * (static_cast<uint64_t>(config.head_count) + 2);
    const uint64_t attention_kept = element * (2 * t.queries + 2 * t.keys) + statistics;
    const uint64_t half_kept = attention_kept + element * t.hidden;
    const uint64_t kept = half_kept + 2 * element * t.inner;
    const uint64_t hidden_row = t.work * t.hidden;

    const auto scratch_of = [&](uint64_t outputs, uint64_t inputs) {
        return scratch_bytes(t, shape, t.tokens, outputs, inputs);
    };
    const uint64_t scratch = std::max({scratch_of(queries, hidden), scratch_of(hidden, queries),
                                       scratch_of(inner, hidden), scratch_of(hidden, inner)});

    const AttentionScratch looking = attention_scratch(
        shape.block.attention, static_cast<int64_t>(element), shape.thread_count, shape.kernels);
    // Forward again, with all that it will keep there already.
    const uint64_t look = kept + hidden_row + looking.forward_bytes;
    const uint64_t keep = kept + 2 * hidden_row + (t.reference ? 12 * t.hidden : 0);
    const uint64_t down = kept + hidden_row + 2 * t.work * t.inner;
    const uint64_t swiglu = down + (t.reference ? 2 * t.wide_copy * t.inner + t.work * t.inner : 0);
    const uint64_t gate_up = half_kept + 3 * hidden_row + 2 * t.work * t.inner;
    const uint64_t norm = half_kept + 3 * hidden_row + norm_backward_bytes(t, t.hidden);
    const uint64_t output = attention_kept + hidden_row + element * t.queries +
                            (t.wide_copy > 0 ? 2 * t.wide_copy * t.queries : 0);
    const uint64_t attention = attention_kept + hidden_row +
                               element * (2 * t.queries + 2 * t.keys) + looking.backward_bytes;
    const uint64_t projections =
        3 * hidden_row + element * (t.queries + 2 * t.keys) + t.wide_copy * t.queries;
    const uint64_t last_norm = 3 * hidden_row + norm_backward_bytes(t, t.hidden);
    return scratch + std::max({look, keep, down, swiglu, gate_up, norm, output, attention,
                               projections, last_norm});
}

// A chunk of the head: its logits, which become their gradient.
uint64_t head_bytes(const Terms& t, const LlamaConfig& config, const WorkspaceShape& shape) {
    const auto hidden = static_cast<uint64_t>(config.hidden_size);
    const auto words = static_cast<uint64_t>(config.vocabulary_size);
    const uint64_t rows = std::min<uint64_t>(static_cast<uint64_t>(head_chunk_tokens(config)),
                                             offload::align_up(t.tokens, 16));
    const uint64_t kept = (t.storage + 2 * t.work) * rows * hidden;
    // Two tensors that the reference norm computes in fp32 lie below what it leaves in work: a hole
    // by then, of which d_normed takes a part.
    const uint64_t hole = t.work == 4 || !t.reference ? 0 : (2 * 4 - t.work) * rows * hidden;
    const uint64_t logits = t.work * rows * words;
    const uint64_t wide_logits = t.work == 4 || !t.reference ? 0 : 4 * rows * words;
    const uint64_t norm = t.work * rows * hidden + norm_backward_bytes(t, rows * hidden);
    return kept + hole + scratch_bytes(t, shape, rows, words, hidden) +
           std::max(logits + wide_logits, norm);
}

}  // namespace

WorkspaceShape shape_on_card(const BlockShape& block, Kernels kernels) {
    return {.block = block, .work = block.storage, .thread_count = 1, .kernels = kernels};
}

uint64_t workspace_bytes_of(const LlamaConfig& config, const WorkspaceShape& shape) {
    CHECK_GT(shape.thread_count, 0);
    CHECK(shape.work == shape.block.storage || shape.work == offload::Dtype::fp32);
    CHECK_GT(shape.block.token_count(), 0);
    const auto tokens = static_cast<uint64_t>(shape.block.token_count());
    const uint64_t storage = bytes_of(shape.block.storage, 1);
    const uint64_t work = bytes_of(shape.work, 1);
    const Terms terms{
        .tokens = tokens,
        .hidden = tokens * static_cast<uint64_t>(config.hidden_size),
        .queries = tokens * static_cast<uint64_t>(config.head_count * config.head_dim),
        .keys = tokens * static_cast<uint64_t>(config.kv_head_count * config.head_dim),
        .inner = tokens * static_cast<uint64_t>(config.intermediate_size),
        .storage = storage,
        .work = work,
        .wide_copy = storage == work ? 0 : work,
        .reference = shape.kernels == Kernels::reference};
    const uint64_t rope_bytes = 8 * static_cast<uint64_t>(shape.block.attention.column_count) *
                                static_cast<uint64_t>(config.head_dim);
    const uint64_t block = rope_bytes + block_bytes(terms, config, shape);
    const uint64_t needed_bytes =
        std::max(block + block / 100 * hole_percent, head_bytes(terms, config, shape));
    return offload::align_up(needed_bytes + small_tensors_bytes, offload::page_bytes);
}

}  // namespace headrace::engine
