// Goal: what lies between two products has the same bits on any number of threads, for a row alone
// or among neighbours, and what the fused kernels compute is what their ATen twins compute.
// Method: every operation over row counts around the blocks that threads take, on 1 and 2 threads;
// one row against the same row of many; fused against reference, to rounding.
#include "engine/torch/ops/rows.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/torch/llama.h"
#include "engine/torch/ops/cross_entropy.h"
#include "engine/torch/ops/matmul.h"
#include "engine/torch/ops/residual.h"
#include "engine/torch/ops/rms_norm.h"
#include "engine/torch/ops/swiglu.h"

namespace headrace::engine {
namespace {

constexpr int64_t columns = 578;  // no multiple of 16

at::Tensor random(int64_t rows, int64_t width, at::ScalarType type, int64_t salt) {
    at::Tensor values = at::empty({rows, width}, at::TensorOptions().dtype(at::kFloat));
    float* element = values.data_ptr<float>();
    uint32_t state = static_cast<uint32_t>(salt) * 2654435761u + 1;
    for (int64_t i = 0; i < values.numel(); ++i) {
        state = state * 1664525u + 1013904223u;
        element[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
    return values.to(type);
}

// All results of all operations, in one order. `x` and the others are rows of one matrix, of
// values that `given` can tell.
std::vector<at::Tensor> compute_all(int64_t rows, at::ScalarType storage, Kernels kernels,
                                    at::ScalarType given) {
    const at::ScalarType work = work_type(storage);
    const auto operand = [&](int64_t salt, at::ScalarType type) {
        return random(64 * 9, columns, given, salt).to(type).narrow(0, 0, rows).contiguous();
    };
    const at::Tensor x = operand(1, storage);
    const at::Tensor weight = random(1, columns, given, 2).to(storage).select(0, 0);
    const at::Tensor dy = operand(3, work);
    const at::Tensor up = operand(4, storage);
    const Norm norm = rms_norm(x, weight, 1e-5, kernels);
    std::vector<at::Tensor> results = {norm.y, norm.inverse_rms};
    const at::Tensor sum = operand(5, work);
    at::Tensor weight_gradient = at::zeros({1, columns}, at::TensorOptions().dtype(at::kFloat));
    const GradientSink sink({weight_gradient.data_ptr<float>(), columns}, Accumulate::add,
                            offload::Dtype::fp32);
    rms_norm_backward({dy, x, norm.inverse_rms, weight, sum}, sink, kernels);
    results.insert(results.end(), {sum, weight_gradient, swiglu(x, up, kernels)});
    const at::Tensor d_product = operand(6, work);
    const at::Tensor d_up = at::empty_like(d_product);
    swiglu_backward(x, up, d_product, d_up, kernels);
    results.insert(results.end(), {d_product, d_up});
    const at::Tensor out = at::empty_like(x);
    add_residual(x, dy, out);
    const at::Tensor logits = operand(7, work);
    std::vector<int32_t> tokens(static_cast<size_t>(rows), 77);
    std::vector<float> scales(static_cast<size_t>(rows), 0.125f);
    std::vector<double> losses(static_cast<size_t>(rows));
    cross_entropy(logits, {.tokens = tokens, .scales = scales, .losses = losses}, kernels);
    at::Tensor all_losses = at::empty({rows, 1}, at::TensorOptions().dtype(at::kDouble));
    std::copy(losses.begin(), losses.end(), all_losses.data_ptr<double>());
    results.insert(results.end(), {out, logits, all_losses, converted(x, work)});
    return results;
}

std::vector<at::Tensor> compute_all(int64_t rows, at::ScalarType storage, Kernels kernels) {
    return compute_all(rows, storage, kernels, storage);
}

constexpr size_t weight_gradient_index = 3;  // the one result that has no row per row
constexpr size_t gate_gradient_index = 5;    // ATen rounds it twice where it computes in bf16

TEST(Rows, SameBitsOnOneAndTwoThreads) {
    for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
        for (const int64_t rows : {1, 31, 32, 33, 63, 65, 512}) {
            start_torch(1);
            const std::vector<at::Tensor> one = compute_all(rows, storage, Kernels::fused);
            start_torch(2);
            const std::vector<at::Tensor> two = compute_all(rows, storage, Kernels::fused);
            for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(two[i])) << i;
        }
    }
}

TEST(Rows, ARowDoesNotSeeItsNeighbours) {
    start_torch(2);
    for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const std::vector<at::Tensor> many = compute_all(65, storage, Kernels::fused);
        const std::vector<at::Tensor> alone = compute_all(1, storage, Kernels::fused);
        for (size_t i = 0; i < many.size(); ++i) {
            if (i == weight_gradient_index) continue;
            EXPECT_TRUE(many[i].narrow(0, 0, 1).equal(alone[i])) << i;
        }
    }
}

double distance(const at::Tensor& a, const at::Tensor& b) {
    return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
}

TEST(Rows, FusedIsWhatAtenComputes) {
    start_torch(2);
    for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const std::vector<at::Tensor> fused = compute_all(65, storage, Kernels::fused);
        const std::vector<at::Tensor> aten = compute_all(65, storage, Kernels::reference);
        for (size_t i = 0; i < fused.size(); ++i) {
            const bool rounded = fused[i].scalar_type() != at::kFloat;
            if (i == gate_gradient_index && rounded) continue;  // the next test has it
            const double size = aten[i].to(at::kDouble).norm().item<double>();
            EXPECT_LE(distance(fused[i], aten[i]), (rounded ? 2e-3 : 2e-6) * size) << i;
        }
    }
}

// ATen rounds after every operation, the fused kernels once: where results are bf16 they are to be
// as near as ATen's to those of the same values in fp32.
TEST(Rows, FusedIsAsNearAsAtenWhereResultsAreRounded) {
    start_torch(2);
    const std::vector<at::Tensor> fused = compute_all(65, at::kBFloat16, Kernels::fused);
    const std::vector<at::Tensor> aten = compute_all(65, at::kBFloat16, Kernels::reference);
    const std::vector<at::Tensor> exact =
        compute_all(65, at::kFloat, Kernels::reference, at::kBFloat16);
    int rounded_count = 0;
    for (size_t i = 0; i < fused.size(); ++i) {
        if (fused[i].scalar_type() != at::kBFloat16) continue;
        ++rounded_count;
        EXPECT_LE(distance(fused[i], exact[i]), 1.001 * distance(aten[i], exact[i])) << i;
    }
    EXPECT_GT(rounded_count, 0);
}

}  // namespace
}  // namespace headrace::engine
