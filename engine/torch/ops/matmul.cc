#include "engine/torch/ops/matmul.h"

#include <algorithm>

namespace headrace::engine {

namespace {

bool cpu_multiplies_bf16() {
    return __builtin_cpu_supports("avx512bf16");
}

void check_operands(const at::Tensor& x, const at::Tensor& weight) {
    CHECK_EQ(x.dim(), 2);
    CHECK_EQ(weight.dim(), 2);
    CHECK_EQ(x.size(1), weight.size(1));
    CHECK(x.scalar_type() == weight.scalar_type());
}

}  // namespace

MatmulPath matmul_path(offload::Dtype dtype) {
    if (dtype == offload::Dtype::fp32) return MatmulPath::native;
    return cpu_multiplies_bf16() ? MatmulPath::native : MatmulPath::rounded_fp32;
}

at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, MatmulPath path) {
    check_operands(x, weight);
    if (path == MatmulPath::native || x.scalar_type() == at::kFloat) return at::mm(x, weight.t());

    const int64_t output_count = weight.size(0);
    const at::Tensor wide_x = x.to(at::kFloat);  // (tokens, inputs)
    if (output_count <= matmul_tile_rows) {
        return at::mm(wide_x, weight.to(at::kFloat).t()).to(x.scalar_type());
    }
    at::Tensor y = at::empty({x.size(0), output_count}, x.options());  // (tokens, outputs)
    for (int64_t row = 0; row < output_count; row += matmul_tile_rows) {
        const int64_t row_count = std::min(matmul_tile_rows, output_count - row);
        const at::Tensor tile = weight.narrow(0, row, row_count).to(at::kFloat);
        y.narrow(1, row, row_count).copy_(at::mm(wide_x, tile.t()));
    }
    return y;
}

at::Tensor multiply_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                             const GradientSink& sink, MatmulPath path) {
    check_operands(x, weight);
    CHECK_EQ(dy.size(0), x.size(0));
    CHECK_EQ(dy.size(1), weight.size(0));
    CHECK_EQ(sink.element_count(), static_cast<uint64_t>(weight.numel()));
    // With the native path `widen` is the identity and copies nothing.
    const at::ScalarType wide = path == MatmulPath::native ? x.scalar_type() : at::kFloat;
    const int64_t output_count = weight.size(0);
    const int64_t input_count = weight.size(1);

    at::Tensor dx;  // (tokens, inputs)
    if (path == MatmulPath::native) dx = at::mm(dy, weight);
    const at::Tensor wide_x = x.to(wide);  // (tokens, inputs)
    for (int64_t row = 0; row < output_count; row += matmul_tile_rows) {
        const int64_t row_count = std::min(matmul_tile_rows, output_count - row);
        const at::Tensor wide_dy = dy.narrow(1, row, row_count).to(wide);  // (tokens, tile)
        if (path == MatmulPath::rounded_fp32) {
            const at::Tensor tile = weight.narrow(0, row, row_count).to(wide);  // (tile, inputs)
            if (dx.defined()) {
                dx.addmm_(wide_dy, tile);
            } else {
                dx = at::mm(wide_dy, tile);
            }
        }
        sink.add(static_cast<uint64_t>(row * input_count), at::mm(wide_dy.t(), wide_x));
    }
    return dx.to(x.scalar_type());
}

}  // namespace headrace::engine
