#include "engine/torch/ops/swiglu.h"

namespace headrace::engine {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SwiGlu : torch::autograd::Function<SwiGlu> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                              const at::Tensor& up) {
        context->save_for_backward({gate, up});
        return at::silu(gate).mul_(up);
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        CHECK_EQ(gradients.size(), 1u);
        CHECK_EQ(saved.size(), 2u);
        at::Tensor d_gate = at::silu_backward(at::mul(gradients[0], saved[1]), saved[0]);
        at::Tensor d_up = at::silu(saved[0]).mul_(gradients[0]);
        return {d_gate, d_up};
    }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
    CHECK_EQ(gate.dim(), 2);
    CHECK(gate.sizes() == up.sizes());
    CHECK(gate.scalar_type() == up.scalar_type());
    return SwiGlu::apply(gate, up);
}

}  // namespace headrace::engine
