#include "engine/torch/ops/swiglu.h"

#include "engine/torch/ops/matmul.h"
#include "engine/torch/ops/rows.h"

namespace headrace::engine {

namespace {

// The bytes of a contiguous tensor from element `first` on.
const std::byte* from(const at::Tensor& x, int64_t first) {
    return static_cast<const std::byte*>(x.const_data_ptr()) +
           first * static_cast<int64_t>(x.element_size());
}

std::byte* mutable_from(const at::Tensor& x, int64_t first) {
    return const_cast<std::byte*>(from(x, first));
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Kernels kernels) {
    CHECK_EQ(gate.dim(), 2);
    CHECK(gate.sizes() == up.sizes());
    CHECK(gate.scalar_type() == up.scalar_type());
    CHECK(gate.is_contiguous() && up.is_contiguous());
    if (kernels == Kernels::reference) return at::silu(as_work(gate)).mul_(up);
    const at::Tensor product =
        at::empty(gate.sizes(), gate.options().dtype(work_type(gate.scalar_type())));
    for_element_blocks(gate.numel(), [&](int64_t first, int64_t count) {
        row_functions().swiglu({.formats = formats_of(gate.scalar_type()),
                                .element_count = count,
                                .gate = from(gate, first),
                                .up = from(up, first),
                                .product = mutable_from(product, first)});
    });
    return product;
}

void swiglu_backward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& d_product,
                     const at::Tensor& d_up, Kernels kernels) {
    CHECK(d_product.sizes() == gate.sizes());
    CHECK(d_up.sizes() == gate.sizes());
    CHECK(d_product.is_contiguous() && d_up.is_contiguous());
    if (kernels == Kernels::reference) {
        const at::Tensor wide_gate = as_work(gate);  // (tokens, intermediate)
        at::Tensor target = d_up;
        at::silu_out(target, wide_gate).mul_(d_product);
        d_product.mul_(up);
        at::Tensor d_gate = d_product;
        at::silu_backward_out(d_gate, d_product, wide_gate);
        return;
    }
    for_element_blocks(gate.numel(), [&](int64_t first, int64_t count) {
        row_functions().swiglu_backward({.formats = formats_of(gate.scalar_type()),
                                         .element_count = count,
                                         .gate = from(gate, first),
                                         .up = from(up, first),
                                         .d_product = mutable_from(d_product, first),
                                         .d_up = mutable_from(d_up, first)});
    });
}

}  // namespace headrace::engine
