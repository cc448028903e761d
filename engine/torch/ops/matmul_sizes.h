// In what the matrices of a layer are multiplied, and the memory this takes: arithmetic alone,
// without torch. What is done with it: ops/matmul.h.
#pragma once

#include <cstdint>

#include "offload/dtype.h"

namespace headrace::engine {

enum class MatmulPath : uint8_t { native, rounded_fp32 };

// What this CPU is best at for `dtype`.
MatmulPath matmul_path(offload::Dtype dtype);

// The work dtype for `storage` on this CPU. (A card multiplies in storage.)
offload::Dtype work_dtype(offload::Dtype storage);

// Rows of a weight that are widened, or whose gradient is made, at a time: about equal tiles of at
// most matmul_tile_rows_max.
inline constexpr int64_t matmul_tile_rows_max = 1024;
int64_t matmul_tile_rows(int64_t output_count);

// Elements of work that the products of a weight need beside operands and results: a tile, and
// where y is rounded the columns that it gives. One piece of scratch serves all products of a
// layer, so that tiles leave no holes between tensors that live longer.
int64_t matmul_scratch_elements(int64_t token_count, int64_t output_count, int64_t input_count,
                                offload::Dtype storage, offload::Dtype work);

}  // namespace headrace::engine
