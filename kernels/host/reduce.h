// The reduce of one part: its fp32 accumulators become the stash, and what the verdict needs.
//
//   sum = first_use (+ second_use)        fp32; a tied parameter has one accumulator per use
//   stash = bf16(sum) or fp16(sum), nearest even, or sum itself
//   squares += one double per block of 2048 elements, from the stash as stored
//
// Within a block, element i adds its square to lane i % 16 in ascending order, and the lanes are
// joined by halves (8, 4, 2, 1). The square of an fp32 is exact in double and blocks are added
// exactly (offload/exact_sum.h), so the norm has the same bits however the model is cut into parts,
// on every row and every device. Elements between tensors are zero and count as zero.
//
// A block with an element that is not finite (an inf or NaN, or a sum beyond bf16 or fp16) does not
// enter the squares: its first tensor is named instead, and the step will be skipped.
//
// Any thread; different parts at once. The rows are tables as in cpu_adam/variants.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/host/isa.h"
#include "kernels/host/reduce_block.h"
#include "offload/dtype.h"
#include "offload/exact_sum.h"
#include "offload/part.h"

namespace headrace::kernels {

struct ReduceRow {
    std::string_view name;
    Isa required_isa = Isa::baseline;
    double (*reduce_block)(const BlockOperands& operands) = nullptr;
};

// All rows, best first; the last one, scalar, runs everywhere.
std::span<const ReduceRow> reduce_rows();
const ReduceRow& best_reduce_row();

// One part. Its element count, that of first_use, is a multiple of block_elements (CHECK).
struct ReduceInput {
    std::span<const float> first_use;
    std::span<const float> second_use;             // empty: used once
    std::span<const offload::TensorPiece> pieces;  // of this part, ascending
    offload::Dtype stash_dtype = offload::Dtype::bf16;
    // At least the elements in stash_dtype. An fp32 stash may be the memory of first_use.
    std::span<std::byte> stash;
};

struct ReduceOutput {
    offload::ExactSum squares;
    std::optional<uint32_t> non_finite_tensor;  // TensorPiece::tensor of the first one
    bool operator==(const ReduceOutput&) const = default;
};

// CHECKs that the row is supported, and that no element outside the pieces is not finite.
ReduceOutput reduce_part(const ReduceRow& row, const ReduceInput& input);

}  // namespace headrace::kernels
