#include "engine/torch/ops/matmul_sizes.h"

#include <algorithm>

#include "offload/check.h"

namespace headrace::engine {

using offload::Dtype;

MatmulPath matmul_path(Dtype dtype) {
    if (dtype == Dtype::fp32) return MatmulPath::native;
    const bool multiplies_bf16 = __builtin_cpu_supports("avx512bf16");
    return dtype == Dtype::bf16 && multiplies_bf16 ? MatmulPath::native : MatmulPath::rounded_fp32;
}

Dtype work_dtype(Dtype storage) {
    return matmul_path(storage) == MatmulPath::native ? storage : Dtype::fp32;
}

int64_t matmul_tile_rows(int64_t output_count) {
    CHECK_GT(output_count, 0);
    constexpr int64_t row_multiple = 16;
    const int64_t tile_count = (output_count + matmul_tile_rows_max - 1) / matmul_tile_rows_max;
    const int64_t rows = (output_count + tile_count - 1) / tile_count;
    return std::min(output_count, (rows + row_multiple - 1) / row_multiple * row_multiple);
}

int64_t matmul_scratch_elements(int64_t token_count, int64_t output_count, int64_t input_count,
                                Dtype storage, Dtype work) {
    const int64_t rows = matmul_tile_rows(output_count);
    const bool rounded = storage != work;
    return rows * (input_count + (rounded ? token_count : 0));
}

}  // namespace headrace::engine
