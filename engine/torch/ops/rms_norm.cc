#include "engine/torch/ops/rms_norm.h"

#include "engine/torch/ops/matmul.h"

namespace headrace::engine {

Norm rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    CHECK_EQ(x.dim(), 2);
    CHECK_EQ(weight.dim(), 1);
    CHECK_EQ(x.size(1), weight.size(0));
    const at::Tensor wide_x = x.to(at::kFloat);  // (tokens, hidden)
    at::Tensor inverse_rms =
        at::mul(wide_x, wide_x).mean(1, true).add_(epsilon).rsqrt_();  // (tokens, 1)
    at::Tensor y = at::mul(wide_x, inverse_rms).to(work_type(x.scalar_type()));
    y.mul_(as_work(weight));  // (tokens, hidden)
    return {y, inverse_rms};
}

void rms_norm_backward(const NormBackward& norm, const GradientSink& sink) {
    const auto& [dy, x, inverse_rms, weight, sum] = norm;
    CHECK(dy.sizes() == x.sizes());
    CHECK(sum.sizes() == x.sizes());
    CHECK_EQ(sink.element_count(), static_cast<uint64_t>(weight.numel()));
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

}  // namespace headrace::engine
