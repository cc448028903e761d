#include "engine/torch/gradient.h"

#include "engine/torch/ops/rows.h"
#include "kernels/host/row_kernels.h"

namespace headrace::engine {

using kernels::Element;

void add_gradient(const Gradient& gradient, offload::Dtype dtype, std::span<float> accumulator,
                  Accumulate mode) {
    const Element rounded = kernels::element_of(dtype);
    CHECK(gradient.element == Element::fp32 || gradient.element == rounded);
    const auto* bytes = static_cast<const std::byte*>(gradient.elements);
    const int64_t element_bytes = gradient.element == Element::fp32 ? 4 : 2;
    for_element_blocks(static_cast<int64_t>(accumulator.size()), [&](int64_t first, int64_t count) {
        row_functions().add_gradient({.gradient_element = gradient.element,
                                      .rounded = rounded,
                                      .element_count = count,
                                      .gradient = bytes + first * element_bytes,
                                      .accumulator = accumulator.data() + first,
                                      .add = mode == Accumulate::add});
    });
}

void GradientSink::add(uint64_t first_element, const at::Tensor& tile) const {
    CHECK(tile.is_contiguous());
    const uint64_t element_count = static_cast<uint64_t>(tile.numel());
    CHECK_LE(first_element + element_count, accumulator_.size());
    add_gradient({tile.const_data_ptr(), element_of(tile.scalar_type())}, dtype_,
                 accumulator_.subspan(first_element, element_count), mode_);
}

}  // namespace headrace::engine
