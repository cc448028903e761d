// Goal: a whole block, forward and backward, is at least as near to exact arithmetic as
// transformers' block in the same dtype, at awkward lengths, head dims, widths and thread counts.
// Method: random weights and inputs, rounded to the dtype; the block of transformers' Llama written
// out with ATen calls and differentiated by autograd: in fp64 it is the truth, in the dtype itself
// it rounds wherever transformers rounds. Distances to the truth are compared tensor by tensor.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/torch/llama.h"
#include "engine/torch/ops/matmul.h"
#include "engine/torch/ops/rope.h"
#include "tests/engine/flat_model.h"
#include "tests/engine/goldens/golden.h"

namespace headrace::engine::tests {
namespace {

using offload::Dtype;

// Neither width is a multiple of 16.
LlamaConfig config_of(int64_t head_count, int64_t kv_head_count, int64_t head_dim) {
    LlamaConfig config;
    config.hidden_size = 90;
    config.intermediate_size = 203;
    config.block_count = 1;
    config.head_count = head_count;
    config.kv_head_count = kv_head_count;
    config.head_dim = head_dim;
    config.vocabulary_size = 32;
    config.max_positions = 4096;
    config.rms_norm_eps = 1e-5;
    config.rope.theta = 10000.0;
    config.tied = true;
    return config;
}

at::ScalarType scalar_type_of(Dtype dtype) {
    return dtype == Dtype::fp32 ? at::kFloat : dtype == Dtype::bf16 ? at::kBFloat16 : at::kHalf;
}

// (columns, heads * head_dim) -> (1, heads, columns, head_dim)
at::Tensor heads_of(const at::Tensor& x, int64_t head_dim) {
    return x.view({1, x.size(0), -1, head_dim}).transpose(1, 2);
}

// transformers' Llama block over one row, in the dtype of its operands.
struct Twin {
    const LlamaConfig& config;

    // Statistics in fp32 at least; rounded, then times the weight.
    at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const {
        const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
        const at::Tensor mean = wide.pow(2).mean(-1, true) + config.rms_norm_eps;
        return weight * (wide * mean.rsqrt()).to(x.scalar_type());
    }

    // x: (1, heads, columns, head_dim). Angles are fp32, cosines and sines of x's dtype.
    at::Tensor turn(const at::Tensor& x) const {
        const std::vector<float> inverse = inverse_frequencies(config.rope, config.head_dim);
        at::Tensor frequencies = at::empty({static_cast<int64_t>(inverse.size())}, at::kFloat);
        std::ranges::copy(inverse, frequencies.data_ptr<float>());
        const at::Tensor half = at::outer(at::arange(x.size(2), at::kFloat), frequencies);
        const at::Tensor angles = at::cat({half, half}, 1);  // (columns, head_dim)
        const int64_t pairs = config.head_dim / 2;
        const at::Tensor crossed = at::cat({-x.narrow(3, pairs, pairs), x.narrow(3, 0, pairs)}, 3);
        return x * angles.cos().to(x.scalar_type()) + crossed * angles.sin().to(x.scalar_type());
    }

    at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
        const int64_t group = config.head_count / config.kv_head_count;
        return at::scaled_dot_product_attention(q, k.repeat_interleave(group, 1),
                                                v.repeat_interleave(group, 1), {}, 0.0,
                                                /*is_causal=*/true);
    }

    // weights in the order of layers_of(): input norm, q, k, v, o, post norm, gate, up, down.
    at::Tensor forward(const at::Tensor& x, const std::vector<at::Tensor>& weights) const {
        const at::Tensor normed = norm(x, weights[0]);
        const auto project = [&](size_t index) {
            return heads_of(normed.mm(weights[index].t()), config.head_dim);
        };
        const at::Tensor attended = attend(turn(project(1)), turn(project(2)), project(3))
                                        .transpose(1, 2)
                                        .reshape({x.size(0), -1});
        const at::Tensor middle = x + attended.mm(weights[4].t());
        const at::Tensor second = norm(middle, weights[5]);
        const at::Tensor product = at::silu(second.mm(weights[6].t())) * second.mm(weights[7].t());
        return middle + product.mm(weights[8].t());
    }

    // y, dx and the gradient of every weight.
    std::vector<at::Tensor> run(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                const at::Tensor& dy, at::ScalarType type) const {
        const auto leaf = [&](const at::Tensor& value) {
            return value.to(type).detach().clone().requires_grad_(true);
        };
        const at::Tensor input = leaf(x);
        std::vector<at::Tensor> parameters;
        for (const at::Tensor& weight : weights) parameters.push_back(leaf(weight));
        const at::Tensor y = forward(input, parameters);
        y.backward(dy.to(type));
        std::vector<at::Tensor> results = {y.detach(), input.grad()};
        for (const at::Tensor& parameter : parameters) results.push_back(parameter.grad());
        return results;
    }
};

constexpr const char* result_names[] = {"y",      "d x",  "d input_norm", "d q",
                                        "d k",    "d v",  "d o",          "d post_norm",
                                        "d gate", "d up", "d down"};
constexpr size_t d_x = 1, d_query = 3, d_key = 4, d_value = 5;

// One block of LlamaCompute with random operands.
struct Case {
    Case(const LlamaConfig& shape, Dtype type, int64_t columns)
        : config(shape), dtype(type), model(make_flat_model(shape, type, golden_weight)) {
        ids.assign(static_cast<size_t>(columns), 0);
        targets.assign(ids.size(), -100);
        batch = {1, columns, ids, targets};
        at::manual_seed(static_cast<uint64_t>(columns));
        x = at::randn({batch.token_count(), config.hidden_size}).to(scalar_type_of(dtype));
        dy = at::randn(x.sizes()).to(x.scalar_type());
    }

    std::vector<int64_t> shape_of(size_t tensor) const {
        return model.layout.specs[1].tensors[tensor].shape;
    }
    size_t tensor_count() const { return model.layout.specs[1].tensors.size(); }

    std::vector<at::Tensor> weights() const {
        std::vector<at::Tensor> result;
        for (size_t tensor = 0; tensor < tensor_count(); ++tensor) {
            const std::vector<std::byte>& run = model.weights[1];
            const uint64_t first =
                offload::bytes_of(dtype, model.layout.layers[1].tensors[tensor].first_element);
            result.push_back(at::from_blob(const_cast<std::byte*>(run.data() + first),
                                           shape_of(tensor), x.options()));
        }
        return result;
    }

    static std::span<std::byte> bytes_of(const at::Tensor& tensor) {
        return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
    }

    std::vector<at::Tensor> run() const {
        const LlamaCompute compute(config, dtype);
        std::vector<at::Tensor> results = {at::empty_like(x), at::empty_like(x)};
        compute.block(batch, {.weights = model.weights[1],
                              .hidden_in = bytes_of(x),
                              .hidden_out = bytes_of(results[0])});
        std::vector<float> accumulator(model.layout.layers[1].element_count);
        compute.block_backward(batch, {.weights = model.weights[1],
                                       .hidden_in = bytes_of(x),
                                       .grad_out = bytes_of(dy),
                                       .grad_in = bytes_of(results[1]),
                                       .accumulator = accumulator});
        for (size_t tensor = 0; tensor < tensor_count(); ++tensor) {
            std::vector<float> values = tensor_of(model.layout, accumulator, 1, tensor);
            results.push_back(at::from_blob(values.data(), shape_of(tensor), at::kFloat).clone());
        }
        return results;
    }

    LlamaConfig config;
    Dtype dtype;
    FlatModel model;
    std::vector<int32_t> ids;
    std::vector<int32_t> targets;
    MicroBatch batch;
    at::Tensor x;   // (tokens, hidden)
    at::Tensor dy;  // the same
};

double distance(const at::Tensor& x, const at::Tensor& truth) {
    return (x.to(at::kDouble) - truth).norm().item<double>();
}

struct Heads {
    int64_t head_count, kv_head_count, head_dim;
};

// Where products are in fp32 and rounded once, less is rounded than in transformers; where they are
// in the dtype itself, as much is, and the order of sums decides which of the two is nearer.
double allowed_ratio(Dtype dtype) {
    return matmul_path(dtype) == MatmulPath::native ? 2.0 : 1.0;
}

// On several numbers of threads, which may change the products' bits.
void expect_as_near_as_transformers(const Heads& heads, Dtype dtype, int64_t columns,
                                    const std::vector<int>& thread_counts) {
    const LlamaConfig config = config_of(heads.head_count, heads.kv_head_count, heads.head_dim);
    const Case shape(config, dtype, columns);
    start_torch(2);
    const Twin twin{config};
    const std::vector<at::Tensor> weights = shape.weights();
    const std::vector<at::Tensor> truth = twin.run(shape.x, weights, shape.dy, at::kDouble);
    const std::vector<at::Tensor> theirs =
        twin.run(shape.x, weights, shape.dy, shape.x.scalar_type());
    for (const int thread_count : thread_counts) {
        start_torch(thread_count);
        const std::vector<at::Tensor> ours = shape.run();
        ASSERT_EQ(ours.size(), truth.size());
        for (size_t i = 0; i < ours.size(); ++i) {
            SCOPED_TRACE(std::string(result_names[i]) + ", " + std::to_string(columns) +
                         " columns, head_dim " + std::to_string(heads.head_dim) + ", " +
                         std::to_string(thread_count) + " threads");
            // One column attends to itself alone: its score has no gradient, but for rounding.
            const bool is_zero = columns == 1 && (i == d_query || i == d_key);
            const double limit = is_zero ? 1e-6 * truth[d_value].norm().item<double>()
                                         : allowed_ratio(dtype) * distance(theirs[i], truth[i]);
            EXPECT_LE(distance(ours[i], truth[i]), limit);
        }
    }
}

class Block : public testing::TestWithParam<Dtype> {};

TEST_P(Block, IsAsNearToExactArithmeticAsTransformers) {
    for (const Heads& heads : {Heads{5, 1, 20}, Heads{3, 1, 64}, Heads{2, 2, 128}}) {
        expect_as_near_as_transformers(heads, GetParam(), 1, {1, 2});
        expect_as_near_as_transformers(heads, GetParam(), 63, {1, 2});
        expect_as_near_as_transformers(heads, GetParam(), 65, {2, 3, 8});
    }
    expect_as_near_as_transformers({3, 1, 64}, GetParam(), 2047, {2});
}

TEST(Bf16Block, IsNearAtEveryHeadDimWhereTheRowIsLong) {
    expect_as_near_as_transformers({5, 1, 20}, Dtype::bf16, 2047, {2});
    expect_as_near_as_transformers({2, 2, 128}, Dtype::bf16, 2047, {2});
}

// What each sample gives alone: outputs one after another, gradients of weights added.
std::vector<at::Tensor> run_apart(const Twin& twin, const Case& shape,
                                  const std::vector<int64_t>& lengths, at::ScalarType type) {
    std::vector<at::Tensor> results;
    int64_t first = 0;
    for (const int64_t length : lengths) {
        const std::vector<at::Tensor> sample =
            twin.run(shape.x.narrow(0, first, length), shape.weights(),
                     shape.dy.narrow(0, first, length), type);
        first += length;
        for (size_t i = 0; i < sample.size(); ++i) {
            const at::Tensor wide = sample[i].to(at::kDouble);
            if (results.size() <= i) {
                results.push_back(wide);
            } else {
                results[i] = i <= d_x ? at::cat({results[i], wide}) : results[i] + wide;
            }
        }
    }
    CHECK_EQ(first, shape.x.size(0));
    return results;
}

TEST_P(Block, PackedSamplesAreComputedAsIfEachStoodAlone) {
    const LlamaConfig config = config_of(3, 1, 64);
    const std::vector<int64_t> lengths = {33, 1, 97, 2, 64, 30};
    std::vector<int32_t> starts;
    for (const int64_t length : lengths) {
        starts.insert(starts.end(), static_cast<size_t>(length),
                      static_cast<int32_t>(starts.size()));
    }
    Case shape(config, GetParam(), static_cast<int64_t>(starts.size()));
    shape.batch.sample_starts = starts;
    start_torch(2);
    const Twin twin{config};
    const std::vector<at::Tensor> truth = run_apart(twin, shape, lengths, at::kDouble);
    const std::vector<at::Tensor> theirs = run_apart(twin, shape, lengths, shape.x.scalar_type());
    const std::vector<at::Tensor> ours = shape.run();
    shape.batch.sample_starts = {};
    const std::vector<at::Tensor> unpacked = shape.run();
    for (size_t i = 0; i < ours.size(); ++i) {
        const double limit = allowed_ratio(GetParam()) * distance(theirs[i], truth[i]);
        EXPECT_LE(distance(ours[i], truth[i]), limit) << result_names[i];
        EXPECT_FALSE(at::equal(unpacked[i], ours[i])) << result_names[i];
    }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Block, testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp16));

}  // namespace
}  // namespace headrace::engine::tests
