#include "engine/torch/ops/rms_norm.h"

#include "engine/torch/ops/matmul.h"
#include "engine/torch/ops/rows.h"
#include "engine/torch/parallel.h"

namespace headrace::engine {

namespace {

// The bytes of a contiguous matrix from row `row` on.
const std::byte* rows_from(const at::Tensor& x, int64_t row) {
    return static_cast<const std::byte*>(x.const_data_ptr()) +
           row * x.size(1) * static_cast<int64_t>(x.element_size());
}

std::byte* mutable_rows_from(const at::Tensor& x, int64_t row) {
    return const_cast<std::byte*>(rows_from(x, row));
}

Norm reference_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    const at::Tensor wide_x = x.to(at::kFloat);  // (tokens, hidden)
    at::Tensor inverse_rms =
        at::mul(wide_x, wide_x).mean(1, true).add_(epsilon).rsqrt_();            // (tokens, 1)
    at::Tensor y = at::mul(wide_x, inverse_rms).to(work_type(x.scalar_type()));  // (tokens, hidden)
    y.mul_(as_work(weight.unsqueeze(0)));
    return {y, inverse_rms};
}

void reference_backward(const NormBackward& norm, const GradientSink& sink) {
    const auto& [dy, x, inverse_rms, weight, sum] = norm;
    const at::Tensor wide_dy = dy.to(at::kFloat);                    // (tokens, hidden)
    const at::Tensor unit = at::mul(x.to(at::kFloat), inverse_rms);  // (tokens, hidden)
    at::Tensor product = at::mul(wide_dy, unit);                     // (tokens, hidden)
    sink.add(0, product.sum(0));                                     // (hidden)
    // d loss / d unit; then its component along unit is removed, and the scale undone.
    at::Tensor dx = at::mul(wide_dy, weight.to(at::kFloat));                // (tokens, hidden)
    const at::Tensor along = at::mul_out(product, dx, unit).mean(1, true);  // (tokens, 1)
    dx.addcmul_(unit, along, -1).mul_(inverse_rms);
    sum.add_(dx);
}

}  // namespace

Norm rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, Kernels kernels) {
    CHECK_EQ(x.dim(), 2);
    CHECK_EQ(weight.dim(), 1);
    CHECK_EQ(x.size(1), weight.size(0));
    CHECK(x.is_contiguous() && weight.is_contiguous());
    CHECK(x.scalar_type() == weight.scalar_type());
    if (kernels == Kernels::reference) return reference_norm(x, weight, epsilon);
    const at::TensorOptions fp32 = at::TensorOptions().dtype(at::kFloat);
    Norm norm{at::empty(x.sizes(), fp32.dtype(work_type(x.scalar_type()))),
              at::empty({x.size(0), 1}, fp32)};
    parallel_rows(x.size(0), norm_block_rows, [&](int64_t first, int64_t last) {
        row_functions().rms_norm({.formats = formats_of(x.scalar_type()),
                                  .row_count = last - first,
                                  .column_count = x.size(1),
                                  .epsilon = static_cast<float>(epsilon),
                                  .x = rows_from(x, first),
                                  .weight = weight.const_data_ptr(),
                                  .y = mutable_rows_from(norm.y, first),
                                  .inverse_rms = norm.inverse_rms.data_ptr<float>() + first});
    });
    return norm;
}

void rms_norm_backward(const NormBackward& norm, const GradientSink& sink, Kernels kernels) {
    const auto& [dy, x, inverse_rms, weight, sum] = norm;
    CHECK(dy.sizes() == x.sizes());
    CHECK(sum.sizes() == x.sizes());
    CHECK(dy.is_contiguous() && x.is_contiguous() && sum.is_contiguous());
    CHECK_EQ(sink.element_count(), static_cast<uint64_t>(weight.numel()));
    if (kernels == Kernels::reference) return reference_backward(norm, sink);
    const int64_t columns = x.size(1);
    const int64_t block_count = (x.size(0) + norm_block_rows - 1) / norm_block_rows;
    at::Tensor partial = at::empty({block_count, columns}, inverse_rms.options());  // per block
    parallel_rows(x.size(0), norm_block_rows, [&](int64_t first, int64_t last) {
        float* block_gradient = partial.data_ptr<float>() + first / norm_block_rows * columns;
        row_functions().rms_norm_backward(
            {.formats = formats_of(x.scalar_type()),
             .row_count = last - first,
             .column_count = columns,
             .dy = rows_from(dy, first),
             .x = rows_from(x, first),
             .inverse_rms = inverse_rms.const_data_ptr<float>() + first,
             .weight = weight.const_data_ptr(),
             .sum = mutable_rows_from(sum, first),
             .weight_gradient = block_gradient});
    });
    float* gradient = partial.data_ptr<float>();
    for (int64_t block = 1; block < block_count; ++block) {
        const float* next = gradient + block * columns;
        for (int64_t column = 0; column < columns; ++column) gradient[column] += next[column];
    }
    sink.add(0, partial.select(0, 0));
}

}  // namespace headrace::engine
