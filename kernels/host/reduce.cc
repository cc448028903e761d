#include "kernels/host/reduce.h"

#include <array>
#include <cmath>

#include "offload/check.h"
#include "offload/fp16.h"

namespace headrace::kernels {

using offload::block_elements;
using offload::Dtype;

namespace {

constexpr std::array<ReduceRow, 2> table = {{
    {"avx2", Isa::avx2_fma_f16c, &reduce_block_avx2},
    {"scalar", Isa::baseline, &reduce_block_scalar},
}};
static_assert(table.back().required_isa == Isa::baseline);
static_assert(reduce_block_elements == block_elements);

float stash_at(const ReduceInput& input, uint64_t element) {
    if (input.stash_dtype == Dtype::fp32) {
        return reinterpret_cast<const float*>(input.stash.data())[element];
    }
    const uint16_t bits = reinterpret_cast<const uint16_t*>(input.stash.data())[element];
    return input.stash_dtype == Dtype::bf16 ? offload::bf16_to_float(bits)
                                            : offload::fp16_to_float(bits);
}

// The tensor of the first element of the block that is not finite. Rare, hence unhurried.
uint32_t first_non_finite_tensor(const ReduceInput& input, uint64_t first_element) {
    uint64_t element = first_element;
    while (std::isfinite(stash_at(input, element))) ++element;
    CHECK_LT(element, first_element + block_elements);
    for (const offload::TensorPiece& piece : input.pieces) {
        const bool holds =
            element >= piece.first_in_part && element - piece.first_in_part < piece.element_count;
        if (holds) return piece.tensor;
    }
    CHECK_TEXT(false, "an element between the tensors is not finite");
    return 0;
}

}  // namespace

std::span<const ReduceRow> reduce_rows() {
    return table;
}

const ReduceRow& best_reduce_row() {
    for (const ReduceRow& row : table) {
        if (has(row.required_isa)) return row;
    }
    CHECK(false);
    return table.back();
}

ReduceOutput reduce_part(const ReduceRow& row, const ReduceInput& input) {
    const uint64_t element_count = input.first_use.size();
    CHECK(has(row.required_isa));
    CHECK_EQ(element_count % block_elements, 0u);
    CHECK(input.second_use.empty() || input.second_use.size() == element_count);
    CHECK_GE(input.stash.size(), bytes_of(input.stash_dtype, element_count));
    CHECK_EQ(reinterpret_cast<uintptr_t>(input.stash.data()) % alignof(float), 0u);

    ReduceOutput output;
    for (uint64_t first = 0; first < element_count; first += block_elements) {
        BlockOperands operands{.first_use = input.first_use.data() + first};
        if (!input.second_use.empty()) operands.second_use = input.second_use.data() + first;
        if (input.stash_dtype == Dtype::fp32) {
            operands.stash_fp32 = reinterpret_cast<float*>(input.stash.data()) + first;
        } else {
            auto* const halves = reinterpret_cast<uint16_t*>(input.stash.data()) + first;
            (input.stash_dtype == Dtype::bf16 ? operands.stash_bf16 : operands.stash_fp16) = halves;
        }
        const double squares = row.reduce_block(operands);
        if (std::isfinite(squares)) {
            output.squares.add(squares);
        } else if (!output.non_finite_tensor.has_value()) {
            output.non_finite_tensor = first_non_finite_tensor(input, first);
        }
    }
    return output;
}

}  // namespace headrace::kernels
