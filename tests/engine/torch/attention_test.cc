// Goal: attention and its gradients are as near to exact arithmetic as torch's flash attention, at
// awkward lengths, head dims and groupings; and turning positions is exact up to one rounding.
// Method: random operands rounded to the compute dtype; the definition in fp64, head by head, with
// full score matrices, is the truth; errors are relative in L2.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/torch/ops/attention.h"

namespace headrace::engine {
namespace {

struct Operands {
    at::Tensor q;           // (tokens, heads * head_dim)
    at::Tensor k;           // (tokens, kv_heads * head_dim)
    at::Tensor v;           // the same
    at::Tensor d_attended;  // as q
};

Operands make_operands(const AttentionShape& shape, at::ScalarType dtype) {
    at::manual_seed(17);
    const int64_t tokens = shape.row_count * shape.column_count;
    const auto random = [&](int64_t head_count, double scale) {
        return at::randn({tokens, head_count * shape.head_dim}).mul_(scale).to(dtype);
    };
    return {random(shape.head_count, 1.5), random(shape.kv_head_count, 1.5),
            random(shape.kv_head_count, 1.0), random(shape.head_count, 1.0)};
}

struct Results {
    at::Tensor attended, log_sum, dq, dk, dv;
};

// The columns of one head in one row, fp64: (columns, head_dim).
at::Tensor head(const at::Tensor& x, const AttentionShape& shape, int64_t row, int64_t index) {
    return x.narrow(0, row * shape.column_count, shape.column_count)
        .narrow(1, index * shape.head_dim, shape.head_dim)
        .to(at::kDouble);
}

Results exact(const Operands& in, const AttentionShape& shape) {
    const at::TensorOptions fp64 = at::TensorOptions().dtype(at::kDouble);
    Results out{at::zeros(in.q.sizes(), fp64),
                at::zeros({shape.row_count, shape.head_count, shape.column_count}, fp64),
                at::zeros(in.q.sizes(), fp64), at::zeros(in.k.sizes(), fp64),
                at::zeros(in.v.sizes(), fp64)};
    const int64_t group = shape.head_count / shape.kv_head_count;
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    const at::Tensor future = at::ones({shape.column_count, shape.column_count}, at::kBool).triu(1);
    for (int64_t row = 0; row < shape.row_count; ++row) {
        for (int64_t i = 0; i < shape.head_count; ++i) {
            const at::Tensor q = head(in.q, shape, row, i);
            const at::Tensor k = head(in.k, shape, row, i / group);
            const at::Tensor v = head(in.v, shape, row, i / group);
            const at::Tensor d_attended = head(in.d_attended, shape, row, i);
            const at::Tensor scores = q.mm(k.t()).mul_(scale).masked_fill_(future, -INFINITY);
            const at::Tensor shares = scores.softmax(1);  // (columns, columns)
            const at::Tensor attended = shares.mm(v);
            const at::Tensor d_shares = d_attended.mm(v.t());
            const at::Tensor delta = (attended * d_attended).sum(1, true);
            const at::Tensor d_scores = shares * (d_shares - delta) * scale;
            const auto add = [&](at::Tensor& target, int64_t index, const at::Tensor& x) {
                target.narrow(0, row * shape.column_count, shape.column_count)
                    .narrow(1, index * shape.head_dim, shape.head_dim)
                    .add_(x);
            };
            add(out.attended, i, attended);
            out.log_sum[row][i].copy_(scores.logsumexp(1));
            add(out.dq, i, d_scores.mm(k));
            add(out.dk, i / group, d_scores.t().mm(q));
            add(out.dv, i / group, shares.t().mm(d_attended));
        }
    }
    return out;
}

Results run(const Operands& in, const AttentionShape& shape, Kernels kernels) {
    const AttentionOut out = attention_forward(in.q, in.k, in.v, shape, kernels);
    const AttentionGradients gradients =
        attention_backward(in.d_attended, in.q, in.k, in.v, out, shape, kernels);
    return {out.attended, out.log_sum, gradients.dq, gradients.dk, gradients.dv};
}

double relative_error(const at::Tensor& x, const at::Tensor& truth) {
    const double distance = (x.to(at::kDouble) - truth).norm().item<double>();
    return distance / (truth.norm().item<double>() + 1e-300);
}

std::vector<double> errors(const Results& x, const Results& truth) {
    return {relative_error(x.attended, truth.attended), relative_error(x.log_sum, truth.log_sum),
            relative_error(x.dq, truth.dq), relative_error(x.dk, truth.dk),
            relative_error(x.dv, truth.dv)};
}

std::vector<AttentionShape> awkward_shapes() {
    std::vector<AttentionShape> shapes;
    for (const int64_t columns : {1, 2, 63, 65, 130}) {
        shapes.push_back({2, columns, 9, 3, 64});
        shapes.push_back({1, columns, 4, 1, 20});
        shapes.push_back({1, columns, 8, 8, 128});
    }
    shapes.push_back({1, 512, 3, 1, 64});
    shapes.push_back({1, 2047, 1, 1, 64});
    return shapes;
}

std::string text_of(const AttentionShape& shape) {
    return std::to_string(shape.row_count) + " x " + std::to_string(shape.column_count) +
           ", heads " + std::to_string(shape.head_count) + ":" +
           std::to_string(shape.kv_head_count) + " of " + std::to_string(shape.head_dim);
}

TEST(Attention, IsNearExactArithmetic) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const double limit = dtype == at::kFloat ? 3e-6 : 1e-2;
        for (const AttentionShape& shape : awkward_shapes()) {
            SCOPED_TRACE(text_of(shape));
            const Operands in = make_operands(shape, dtype);
            const Results truth = exact(in, shape);
            // One column attends to itself alone: its score has no gradient at all.
            const bool has_scores = shape.column_count > 1;
            for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
                const std::vector<double> found = errors(run(in, shape, kernels), truth);
                for (size_t i = 0; i < found.size(); ++i) {
                    if (!has_scores && (i == 2 || i == 3)) continue;
                    EXPECT_LT(found[i], limit) << i;
                }
            }
        }
    }
}

TEST(Rope, TurnsInPlaceAndBack) {
    constexpr int64_t columns = 37;
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        for (const int64_t head_dim : {20, 64}) {
            const RopeTable table =
                rope_table(inverse_frequencies({.theta = 10000.0}, head_dim), columns, dtype);
            at::manual_seed(3);
            const at::Tensor x = at::randn({2 * columns, 3 * head_dim}).to(dtype);
            for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
                at::Tensor turned = x.clone();
                rope_rotate_(turned, table, Turn::forward, kernels);
                const at::Tensor wide =
                    rotate(x.view({2, columns, 3, head_dim}), table, Turn::forward);
                EXPECT_LT(relative_error(turned, wide.to(dtype).view(x.sizes()).to(at::kDouble)),
                          dtype == at::kFloat ? 1e-7 : 1e-4);
                rope_rotate_(turned, table, Turn::back, kernels);
                EXPECT_LT(relative_error(turned, x.to(at::kDouble)),
                          dtype == at::kFloat ? 1e-6 : 6e-3);
            }
        }
    }
}

}  // namespace
}  // namespace headrace::engine
