#include "engine/torch/ops/rows.h"

#include "engine/torch/ops/matmul.h"
#include "engine/torch/parallel.h"
#include "kernels/host/row_kernels.h"

namespace headrace::engine {

const kernels::RowFunctions& row_functions() {
    static const kernels::RowFunctions& functions = kernels::best_row_kernels().functions;
    return functions;
}

kernels::Element element_of(at::ScalarType type) {
    if (type == at::kBFloat16) return kernels::Element::bf16;
    if (type == at::kHalf) return kernels::Element::fp16;
    CHECK(type == at::kFloat);
    return kernels::Element::fp32;
}

kernels::Formats formats_of(at::ScalarType storage) {
    return {.storage = element_of(storage), .work = element_of(work_type(storage))};
}

void for_element_blocks(int64_t element_count,
                        const std::function<void(int64_t first, int64_t count)>& body) {
    constexpr int64_t block_elements = 32 << 10;
    parallel_rows(element_count, block_elements,
                  [&](int64_t first, int64_t last) { body(first, last - first); });
}

void convert(const at::Tensor& source, const at::Tensor& target) {
    CHECK_EQ(source.dim(), 2);
    CHECK(source.sizes() == target.sizes());
    CHECK_EQ(source.stride(1), 1);
    CHECK_EQ(target.stride(1), 1);
    constexpr int64_t block_elements = 32 << 10;
    const kernels::ConvertRows all{.from = element_of(source.scalar_type()),
                                   .to = element_of(target.scalar_type()),
                                   .row_count = source.size(0),
                                   .column_count = source.size(1),
                                   .source = source.const_data_ptr(),
                                   .source_stride = source.stride(0),
                                   .target = target.data_ptr(),
                                   .target_stride = target.stride(0)};
    CHECK(all.from == kernels::Element::fp32 || all.to == kernels::Element::fp32);
    const int64_t block_rows = std::max<int64_t>(1, block_elements / all.column_count);
    parallel_rows(all.row_count, block_rows, [&](int64_t first, int64_t last) {
        kernels::ConvertRows rows = all;
        rows.row_count = last - first;
        rows.source = static_cast<const std::byte*>(all.source) +
                      first * all.source_stride * static_cast<int64_t>(source.element_size());
        rows.target = static_cast<std::byte*>(all.target) +
                      first * all.target_stride * static_cast<int64_t>(target.element_size());
        row_functions().convert(rows);
    });
}

at::Tensor converted(const at::Tensor& x, at::ScalarType type) {
    if (x.scalar_type() == type) return x;
    at::Tensor copy = at::empty(x.sizes(), x.options().dtype(type));
    convert(x, copy);
    return copy;
}

}  // namespace headrace::engine
