// One block of kernels/host/reduce.h, as the rows see it. Plain structs only: the translation units
// with instruction-set flags include this header, and an inline function here could be kept by the
// linker in a form that not every machine can run.
#pragma once

#include <cstdint>

namespace headrace::kernels {

inline constexpr uint64_t reduce_block_elements = 2048;  // offload::block_elements

// Exactly one stash is set. stash_fp32 may be first_use.
struct BlockOperands {
    const float* first_use = nullptr;
    const float* second_use = nullptr;  // null: used once
    uint16_t* stash_bf16 = nullptr;
    uint16_t* stash_fp16 = nullptr;
    float* stash_fp32 = nullptr;
};

// Writes the stash and returns its sum of squares, which is not finite exactly when an element of
// the stash is not: the squares of 2048 finite floats cannot reach the largest double.
double reduce_block_scalar(const BlockOperands& operands);
double reduce_block_avx2(const BlockOperands& operands);

}  // namespace headrace::kernels
