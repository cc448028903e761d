#include "engine/torch/ops/swiglu.h"

#include "engine/torch/ops/matmul.h"

namespace headrace::engine {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
    CHECK_EQ(gate.dim(), 2);
    CHECK(gate.sizes() == up.sizes());
    CHECK(gate.scalar_type() == up.scalar_type());
    return at::silu(as_work(gate)).mul_(up);
}

void swiglu_backward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& d_product,
                     const at::Tensor& d_up) {
    CHECK(d_product.sizes() == gate.sizes());
    CHECK(d_up.sizes() == gate.sizes());
    const at::Tensor wide_gate = as_work(gate);  // (tokens, intermediate)
    at::Tensor target = d_up;
    at::silu_out(target, wide_gate).mul_(d_product);
    d_product.mul_(up);
    at::Tensor d_gate = d_product;
    at::silu_backward_out(d_gate, d_product, wide_gate);
}

}  // namespace headrace::engine
