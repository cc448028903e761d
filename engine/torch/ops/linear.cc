#include "engine/torch/ops/linear.h"

namespace headrace::engine {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Linear : torch::autograd::Function<Linear> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const GradientSink* sink, MatmulPath path) {
        context->save_for_backward({x, weight});
        context->saved_data["sink"] = reinterpret_cast<int64_t>(sink);
        context->saved_data["path"] = static_cast<int64_t>(path);
        return multiply(x, weight, path);
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const auto* sink =
            reinterpret_cast<const GradientSink*>(context->saved_data["sink"].toInt());
        CHECK_EQ(gradients.size(), 1u);
        CHECK(sink != nullptr);
        const auto path = static_cast<MatmulPath>(context->saved_data["path"].toInt());
        at::Tensor dx = multiply_backward(gradients[0], saved[0], saved[1], *sink, path);
        return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
    }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const GradientSink* sink,
                  MatmulPath path) {
    CHECK(sink != nullptr || !at::GradMode::is_enabled());
    return Linear::apply(x, weight, sink, path);
}

}  // namespace headrace::engine
