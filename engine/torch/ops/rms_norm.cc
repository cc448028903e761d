#include "engine/torch/ops/rms_norm.h"

namespace headrace::engine {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNorm : torch::autograd::Function<RmsNorm> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, double epsilon, const GradientSink* sink) {
        NormForward result = rms_norm_forward(x, weight, epsilon);
        context->save_for_backward({x, result.inverse_rms, weight});
        context->saved_data["sink"] = reinterpret_cast<int64_t>(sink);
        return result.y;
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const auto* sink =
            reinterpret_cast<const GradientSink*>(context->saved_data["sink"].toInt());
        CHECK_EQ(gradients.size(), 1u);
        CHECK(sink != nullptr);
        at::Tensor dx = rms_norm_backward(gradients[0], saved[0], saved[1], saved[2], *sink);
        return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
    }
};

}  // namespace

NormForward rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    CHECK_EQ(x.dim(), 2);
    CHECK_EQ(weight.dim(), 1);
    CHECK_EQ(x.size(1), weight.size(0));
    const at::Tensor wide_x = x.to(at::kFloat);  // (tokens, hidden)
    at::Tensor inverse_rms =
        at::mul(wide_x, wide_x).mean(1, true).add_(epsilon).rsqrt_();  // (tokens, 1)
    at::Tensor y = at::mul(wide_x, inverse_rms).to(x.scalar_type());   // (tokens, hidden)
    y.mul_(weight);
    return {y, inverse_rms};
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& inverse_rms, const at::Tensor& weight,
                             const GradientSink& sink) {
    CHECK(dy.sizes() == x.sizes());
    CHECK_EQ(sink.element_count(), static_cast<uint64_t>(weight.numel()));
    const at::Tensor wide_dy = dy.to(at::kFloat);                    // (tokens, hidden)
    const at::Tensor unit = at::mul(x.to(at::kFloat), inverse_rms);  // (tokens, hidden)
    at::Tensor product = at::mul(wide_dy, unit);                     // (tokens, hidden)
    sink.add(0, product.sum(0));                                     // (hidden)
    // d loss / d unit; then its component along unit is removed, and the scale undone.
    at::Tensor dx = at::mul(wide_dy, weight.to(at::kFloat));                // (tokens, hidden)
    const at::Tensor along = at::mul_out(product, dx, unit).mean(1, true);  // (tokens, 1)
    dx.addcmul_(unit, along, -1).mul_(inverse_rms);
    return dx.to(x.scalar_type());
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                    const GradientSink* sink) {
    CHECK(sink != nullptr || !at::GradMode::is_enabled());
    return RmsNorm::apply(x, weight, epsilon, sink);
}

}  // namespace headrace::engine
