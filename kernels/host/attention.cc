#include "kernels/host/attention.h"

#include <algorithm>
#include <array>

#include "offload/check.h"

namespace headrace::kernels {

namespace {

int64_t fill_up(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

int64_t blocks_of(int64_t column_count, int64_t block) {
    return (column_count + block - 1) / block;
}

uint64_t positive(int64_t count) {
    CHECK_GE(count, 0);
    return static_cast<uint64_t>(count);
}

bool do_sizes_fit(const AttentionSizes& sizes) {
    return sizes.row_count > 0 && sizes.column_count > 0 && sizes.head_count > 0 &&
           sizes.kv_head_count > 0 && sizes.head_dim > 0 &&
           sizes.head_count % sizes.kv_head_count == 0;
}

}  // namespace

std::span<const AttentionRow> attention_rows() {
    static const std::array<AttentionRow, 3> table = {{
        {"avx512", Isa::avx512f, attention_tasks_avx512()},
        {"avx2", Isa::avx2_fma_f16c, attention_tasks_avx2()},
        {"scalar", Isa::baseline, attention_tasks_scalar()},
    }};
    return table;
}

const AttentionRow& bf16_attention_row() {
    static const AttentionRow row = {"avx512_bf16", Isa::avx512f_bf16,
                                     attention_tasks_avx512_bf16(),
                                     /*is_of_bf16_alone=*/true};
    return row;
}

const AttentionRow& best_attention_row(offload::Dtype dtype) {
    if (dtype == offload::Dtype::bf16 && has(bf16_attention_row().required_isa)) {
        return bf16_attention_row();
    }
    const std::span<const AttentionRow> rows = attention_rows();
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [](const AttentionRow& r) { return has(r.required_isa); });
    CHECK(row != rows.end());
    return *row;
}

std::span<const AttentionPhase> attention_phases(AttentionPass pass) {
    static constexpr std::array forward = {AttentionPhase::pack_forward, AttentionPhase::attend};
    static constexpr std::array backward = {AttentionPhase::pack_backward,
                                            AttentionPhase::differentiate, AttentionPhase::join};
    if (pass == AttentionPass::forward) return forward;
    return backward;
}

int64_t attention_task_count(AttentionPhase phase, const AttentionSizes& sizes) {
    CHECK(do_sizes_fit(sizes));
    switch (phase) {
        case AttentionPhase::pack_forward:
        case AttentionPhase::pack_backward:
        case AttentionPhase::join:
            return sizes.row_count * sizes.kv_head_count *
                   blocks_of(sizes.column_count, attention_key_block);
        case AttentionPhase::attend:
            return sizes.row_count * sizes.head_count *
                   blocks_of(sizes.column_count, attention_query_block);
        case AttentionPhase::differentiate: return sizes.row_count * sizes.head_count;
    }
    CHECK(false);
    return 0;
}

AttentionLayout attention_layout(AttentionPass pass, const AttentionSizes& sizes) {
    CHECK(do_sizes_fit(sizes));
    AttentionLayout layout;
    const int64_t lines = blocks_of(sizes.head_dim, attention_lanes);
    layout.stride = attention_lanes * (lines % 2 == 0 ? lines + 1 : lines);
    layout.query_rows =
        std::min(attention_query_block, fill_up(sizes.column_count, attention_unit));
    layout.key_block_count = blocks_of(sizes.column_count, attention_key_block);
    layout.query_block_count = blocks_of(sizes.column_count, attention_query_block);
    layout.turned_tile_floats = sizes.head_dim * attention_key_block;
    layout.plain_tile_floats = layout.stride * attention_key_block;
    const int64_t turned_count = pass == AttentionPass::forward ? 1 : 2;
    layout.packed_tile_floats = turned_count * layout.turned_tile_floats + layout.plain_tile_floats;
    layout.head_gradient_floats = fill_up(sizes.column_count, attention_unit) * layout.stride;
    layout.gradients_first_float =
        sizes.row_count * sizes.kv_head_count * layout.key_block_count * layout.packed_tile_floats;
    return layout;
}

uint64_t attention_shared_floats(AttentionPass pass, const AttentionSizes& sizes) {
    const AttentionLayout layout = attention_layout(pass, sizes);
    if (pass == AttentionPass::forward) return positive(layout.gradients_first_float);
    return positive(layout.gradients_first_float +
                    sizes.row_count * sizes.head_count * 2 * layout.head_gradient_floats);
}

uint64_t attention_worker_floats(AttentionPass pass, const AttentionSizes& sizes) {
    const AttentionLayout layout = attention_layout(pass, sizes);
    const int64_t operand = layout.query_rows * layout.stride;
    const int64_t scores = layout.query_rows * attention_key_block;
    if (pass == AttentionPass::forward) {
        return positive(2 * operand + scores + layout.query_rows * (attention_lanes + 1));
    }
    // The fourth operand: queries and gradients once more, as pairs of bf16, whose last row is
    // written in whole lanes.
    return positive(4 * operand + 2 * scores + 2 * layout.query_rows + attention_lanes);
}

void run_attention_task(const AttentionRow& row, AttentionPhase phase,
                        const AttentionOperands& operands, int64_t task, std::span<float> worker) {
    CHECK(has(row.required_isa));
    CHECK(!row.is_of_bf16_alone || operands.dtype == offload::Dtype::bf16);
    CHECK_GE(task, 0);
    CHECK_LT(task, attention_task_count(phase, operands.sizes));
    CHECK(operands.shared != nullptr);
    const bool is_forward =
        phase == AttentionPhase::pack_forward || phase == AttentionPhase::attend;
    const AttentionPass pass = is_forward ? AttentionPass::forward : AttentionPass::backward;
    CHECK(operands.layout == attention_layout(pass, operands.sizes));
    CHECK_GE(worker.size(), attention_worker_floats(pass, operands.sizes));
    row.tasks.functions[static_cast<int>(phase)](operands, task, worker.data());
}

const char* find_fault(AttentionPass pass, const AttentionOperands& o) {
    if (!do_sizes_fit(o.sizes))
        return "a size is not positive, or heads are no multiple of kv heads";
    if (o.layout != attention_layout(pass, o.sizes)) return "the layout is that of other sizes";
    if (!(o.scale > 0.0f)) return "the scale is not positive";
    if (o.q == nullptr || o.k == nullptr || o.v == nullptr) return "q, k or v is missing";
    if (o.attended == nullptr || o.log_sum == nullptr) return "attended or log_sum is missing";
    if (o.shared == nullptr) return "the shared scratch is missing";
    const bool has_gradients =
        o.d_attended != nullptr && o.dq != nullptr && o.dk != nullptr && o.dv != nullptr;
    if (pass == AttentionPass::backward && !has_gradients) return "a gradient is missing";
    for (int64_t i = 0; o.first_keys != nullptr && i < o.sizes.row_count * o.sizes.column_count;
         ++i) {
        const int64_t column = i % o.sizes.column_count;
        if (o.first_keys[i] < 0 || o.first_keys[i] > column) return "a query does not see itself";
        if (column > 0 && o.first_keys[i] < o.first_keys[i - 1]) return "first keys descend";
    }
    return nullptr;
}

}  // namespace headrace::kernels
