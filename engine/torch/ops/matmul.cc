#include "engine/torch/ops/matmul.h"

#include <algorithm>
#include <optional>

#include "engine/torch/ops/rows.h"
#include "engine/torch/scalar_type.h"
#include "engine/torch/workspace.h"

namespace headrace::engine {

namespace {

void check_operands(const at::Tensor& x, const at::Tensor& weight) {
    CHECK_EQ(x.dim(), 2);
    CHECK_EQ(weight.dim(), 2);
    CHECK_EQ(x.size(1), weight.size(1));
    CHECK(x.scalar_type() == work_type(weight.scalar_type()));
}

// (row_count, column_count), from element `first` of the scratch on
at::Tensor piece(const at::Tensor& scratch, int64_t first, int64_t row_count,
                 int64_t column_count) {
    CHECK_EQ(scratch.dim(), 1);
    return scratch.narrow(0, first, row_count * column_count).view({row_count, column_count});
}

// target (+)= left right. Nothing is allocated but what a library packs operands of 16 bits into.
void multiply_into(const at::Tensor& left, const at::Tensor& right, InputGradient mode,
                   at::Tensor target) {
    std::optional<LibraryMemory> packed;
    if (left.scalar_type() != at::kFloat) packed.emplace();
    if (mode == InputGradient::add) {
        target.addmm_(left, right);
    } else {
        at::mm_out(target, left, right);
    }
}

}  // namespace

at::ScalarType work_type(at::ScalarType storage) {
    return scalar_type_of(work_dtype(dtype_of(storage)));
}

at::Tensor as_work(const at::Tensor& x) {
    return converted(x, work_type(x.scalar_type()));
}

int64_t matmul_scratch_elements(int64_t token_count, int64_t output_count, int64_t input_count,
                                at::ScalarType storage) {
    const offload::Dtype dtype = dtype_of(storage);
    return matmul_scratch_elements(token_count, output_count, input_count, dtype,
                                   work_dtype(dtype));
}

void multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y,
              const at::Tensor& scratch) {
    check_operands(x, weight);
    CHECK(y.is_contiguous());
    CHECK_EQ(y.size(0), x.size(0));
    CHECK_EQ(y.size(1), weight.size(0));
    if (x.scalar_type() == weight.scalar_type()) {
        CHECK(y.scalar_type() == x.scalar_type());
        return multiply_into(x, weight.t(), InputGradient::store, y);
    }
    const int64_t output_count = weight.size(0);
    const int64_t tile_rows = matmul_tile_rows(output_count);
    for (int64_t row = 0; row < output_count; row += tile_rows) {
        const int64_t row_count = std::min(tile_rows, output_count - row);
        at::Tensor tile = piece(scratch, 0, row_count, weight.size(1));  // (tile, inputs)
        convert(weight.narrow(0, row, row_count), tile);
        at::Tensor columns = y.narrow(1, row, row_count);  // (tokens, tile)
        if (y.scalar_type() == at::kFloat) {
            multiply_into(x, tile.t(), InputGradient::store, columns);
        } else {
            at::Tensor wide = piece(scratch, tile.numel(), x.size(0), row_count);
            multiply_into(x, tile.t(), InputGradient::store, wide);
            convert(wide, columns);
        }
    }
}

void multiply_backward(const ProductBackward& product, const GradientSink& sink,
                       const at::Tensor& scratch) {
    const auto& [dy, x, weight, dx, mode] = product;
    check_operands(x, weight);
    CHECK_EQ(dy.size(0), x.size(0));
    CHECK_EQ(dy.size(1), weight.size(0));
    CHECK(dy.scalar_type() == x.scalar_type());
    CHECK(dx.scalar_type() == x.scalar_type());
    CHECK(dx.sizes() == x.sizes());
    CHECK_EQ(sink.element_count(), static_cast<uint64_t>(weight.numel()));
    const int64_t output_count = weight.size(0);
    const int64_t input_count = weight.size(1);
    const int64_t tile_rows = matmul_tile_rows(output_count);
    InputGradient next = mode;
    // In 16 bits dx is rounded after every product: then there is one, as in transformers.
    const bool is_whole = dx.scalar_type() != at::kFloat;
    if (is_whole) multiply_into(dy, weight, mode, dx);
    for (int64_t row = 0; row < output_count; row += tile_rows) {
        const int64_t row_count = std::min(tile_rows, output_count - row);
        const at::Tensor dy_tile = dy.narrow(1, row, row_count);  // (tokens, tile)
        at::Tensor tile = piece(scratch, 0, row_count, input_count);
        if (!is_whole) {
            at::Tensor weight_tile = weight.narrow(0, row, row_count);  // (tile, inputs)
            if (weight.scalar_type() != x.scalar_type()) {
                convert(weight_tile, tile);
                weight_tile = tile;
            }
            multiply_into(dy_tile, weight_tile, next, dx);
            next = InputGradient::add;
        }
        multiply_into(dy_tile.t(), x, InputGradient::store, tile);
        sink.add(static_cast<uint64_t>(row * input_count), tile);
    }
}

}  // namespace headrace::engine
