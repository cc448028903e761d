#include "engine/torch/ops/residual.h"

#include "engine/torch/ops/rows.h"

namespace headrace::engine {

void add_residual(const at::Tensor& x, const at::Tensor& y, const at::Tensor& out) {
    CHECK(x.sizes() == y.sizes());
    CHECK(out.sizes() == y.sizes());
    CHECK(out.scalar_type() == x.scalar_type());
    CHECK(x.is_contiguous() && y.is_contiguous() && out.is_contiguous());
    const auto* x_bytes = static_cast<const std::byte*>(x.const_data_ptr());
    const auto* y_bytes = static_cast<const std::byte*>(y.const_data_ptr());
    auto* out_bytes = static_cast<std::byte*>(out.data_ptr());
    const auto storage_bytes = static_cast<int64_t>(x.element_size());
    const auto work_bytes = static_cast<int64_t>(y.element_size());
    for_element_blocks(x.numel(), [&](int64_t first, int64_t count) {
        row_functions().add_residual({.formats = formats_of(x.scalar_type()),
                                      .element_count = count,
                                      .x = x_bytes + first * storage_bytes,
                                      .y = y_bytes + first * work_bytes,
                                      .out = out_bytes + first * storage_bytes});
    });
}

}  // namespace headrace::engine
