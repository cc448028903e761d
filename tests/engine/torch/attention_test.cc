// Goal: attention and its gradients are as near to exact arithmetic as torch's flash attention, at
// awkward lengths, head dims and groupings; and turning positions is exact up to one rounding.
// Bits depend on neither threads nor alignment, and scratch is what it says.
// Method: random operands rounded to the compute dtype; the definition in fp64, head by head, with
// full score matrices, is the truth; errors are relative in L2. Scratch is counted by the
// workspace.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/torch/ops/attention.h"
#include "engine/torch/workspace.h"

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

// [i][j]: key j belongs to a sample before that of query i.
at::Tensor other_samples(const AttentionShape& shape, int64_t row) {
    at::Tensor others = at::zeros({shape.column_count, shape.column_count}, at::kBool);
    for (int64_t i = 0; i < shape.column_count && !shape.starts.empty(); ++i) {
        const int32_t start = shape.starts[static_cast<size_t>(row * shape.column_count + i)];
        others.select(0, i).narrow(0, 0, start).fill_(true);
    }
    return others;
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
        const at::Tensor unseen = future.logical_or(other_samples(shape, row));
        for (int64_t i = 0; i < shape.head_count; ++i) {
            const at::Tensor q = head(in.q, shape, row, i);
            const at::Tensor k = head(in.k, shape, row, i / group);
            const at::Tensor v = head(in.v, shape, row, i / group);
            const at::Tensor d_attended = head(in.d_attended, shape, row, i);
            const at::Tensor scores = q.mm(k.t()).mul_(scale).masked_fill_(unseen, -INFINITY);
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
    for (const int64_t columns : {1, 63, 65, 130}) {
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

// Errors of forward and backward beside those of torch's flash attention on the same operands.
void expect_as_near_as_torch(const AttentionShape& shape, at::ScalarType dtype) {
    SCOPED_TRACE(text_of(shape) + (dtype == at::kFloat ? ", fp32" : ", bf16"));
    const double limit = dtype == at::kFloat ? 3e-6 : 1e-2;
    const Operands in = make_operands(shape, dtype);
    const Results truth = exact(in, shape);
    const std::vector<double> fused = errors(run(in, shape, Kernels::fused), truth);
    const std::vector<double> torch = errors(run(in, shape, Kernels::reference), truth);
    // One column attends to itself alone: its score has no gradient at all.
    const bool has_scores = shape.column_count > 1;
    for (size_t i = 0; i < fused.size(); ++i) {
        if (!has_scores && (i == 2 || i == 3)) continue;
        EXPECT_LT(fused[i], limit) << i;
        EXPECT_LT(torch[i], limit) << i;
        // The rounding of a handful of elements decides where there is one column.
        const double slack = has_scores ? 5e-8 : 2e-7;
        EXPECT_LE(fused[i], 1.1 * torch[i] + slack) << i;
    }
}

TEST(Attention, IsAsNearToExactArithmeticAsTorch) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        for (const AttentionShape& shape : awkward_shapes()) expect_as_near_as_torch(shape, dtype);
    }
}

// Samples of awkward lengths at awkward places, differently in each row.
TEST(Attention, PackedSamplesAreAsNearToExactArithmeticAsTorch) {
    constexpr int64_t columns = 230;
    std::vector<int32_t> starts;
    for (int32_t column = 0; column < columns; ++column) {
        starts.push_back(column < 7 ? 0 : column < 105 ? 7 : column < 107 ? 105 : 107);
    }
    for (int32_t column = 0; column < columns; ++column) starts.push_back(column < 97 ? 0 : 97);
    for (AttentionShape shape :
         {AttentionShape{2, columns, 9, 3, 64}, AttentionShape{2, columns, 4, 1, 20}}) {
        shape.starts = starts;
        expect_as_near_as_torch(shape, at::kFloat);
        expect_as_near_as_torch(shape, at::kBFloat16);
    }
}

void expect_same_bits(const Results& a, const Results& b) {
    EXPECT_TRUE(at::equal(a.attended, b.attended));
    EXPECT_TRUE(at::equal(a.log_sum, b.log_sum));
    EXPECT_TRUE(at::equal(a.dq, b.dq));
    EXPECT_TRUE(at::equal(a.dk, b.dk));
    EXPECT_TRUE(at::equal(a.dv, b.dv));
}

// A copy that begins `shift` elements into its memory.
at::Tensor moved(const at::Tensor& x, int64_t shift) {
    at::Tensor memory = at::empty({x.numel() + shift}, x.options());
    at::Tensor copy = memory.narrow(0, shift, x.numel()).view(x.sizes());
    copy.copy_(x);
    return copy;
}

TEST(Attention, ThreadsAndAlignmentDoNotChangeABit) {
    const AttentionShape shape{3, 205, 8, 4, 100};  // no phase is short enough for one thread
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Operands in = make_operands(shape, dtype);
        at::set_num_threads(1);
        const Results alone = run(in, shape, Kernels::fused);
        at::set_num_threads(2);
        expect_same_bits(run(in, shape, Kernels::fused), alone);
        for (const int64_t shift : {1, 3, 8}) {
            const Operands elsewhere{moved(in.q, shift), moved(in.k, shift), moved(in.v, shift),
                                     moved(in.d_attended, shift)};
            expect_same_bits(run(elsewhere, shape, Kernels::fused), alone);
        }
    }
}

TEST(Attention, TakesTheScratchItSays) {
    install_workspace_allocator();
    std::vector<std::byte> memory(64 << 20);
    void* first = memory.data();
    size_t room = memory.size();
    ASSERT_NE(std::align(64, 32 << 20, first, room), nullptr);
    const std::span region(static_cast<std::byte*>(first), room);
    for (const int thread_count : {1, 2}) {
        at::set_num_threads(thread_count);
        for (const AttentionShape& shape :
             {AttentionShape{1, 300, 9, 3, 64}, AttentionShape{3, 65, 4, 1, 20}}) {
            const Operands in = make_operands(shape, at::kBFloat16);
            const AttentionOut out = attention_forward(in.q, in.k, in.v, shape);
            const AttentionGradients gradients =
                attention_backward(in.d_attended, in.q, in.k, in.v, out, shape);
            for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
                const AttentionScratch said = attention_scratch(shape, 2, thread_count, kernels);
                const auto expect_taken = [&](uint64_t said_bytes, const auto& compute) {
                    reset_workspace_peak();
                    ASSERT_TRUE(with_workspace(region, compute).ok());
                    const uint64_t peak_bytes = workspace_peak().in_use_bytes;
                    EXPECT_LE(peak_bytes, said_bytes + 4096);
                    // The reference's is said for its backward.
                    EXPECT_GE(peak_bytes, said_bytes / (kernels == Kernels::fused ? 1 : 3));
                };
                expect_taken(said.forward_bytes, [&] {
                    attention_forward_into(in.q, in.k, in.v, shape, kernels, out);
                });
                expect_taken(said.backward_bytes, [&] {
                    attention_backward_into(in.d_attended, in.q, in.k, in.v, out, shape, kernels,
                                            gradients);
                });
            }
        }
    }
}

TEST(Rope, TurnsInPlaceAndBack) {
    constexpr int64_t columns = 37;
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        for (const int64_t head_dim : {20, 64}) {  // more than one block of rope.cc
            const RopeTable table =
                rope_table(inverse_frequencies({.theta = 10000.0}, head_dim), columns, dtype);
            at::manual_seed(3);
            const at::Tensor x = at::randn({2 * columns, 60 * head_dim}).to(dtype);
            for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
                at::Tensor turned = x.clone();
                rope_rotate_(turned, table, Turn::forward, kernels);
                const at::Tensor wide =
                    rotate(x.view({2, columns, 60, head_dim}), table, Turn::forward);
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
