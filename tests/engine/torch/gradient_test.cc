// Goal: gradients enter the accumulators in one pass, rounded once, stored or added exactly.
// Method: tables of awkward values and odd counts, against the definition element by element.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/torch/gradient.h"

namespace headrace::engine {
namespace {

using offload::bf16_to_float;
using offload::float_to_bf16;

std::vector<float> awkward_values() {
    return {0.0f, -0.0f, 1.0f, -1.00390625f, 1.01171875f, 3.0e38f, 1e-40f, -7.7f, 65504.0f};
}

TEST(Gradient, AddsAndStoresInEveryForm) {
    const std::vector<float> values = awkward_values();
    std::vector<uint16_t> rounded;
    for (const float value : values) rounded.push_back(float_to_bf16(value));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Accumulate mode : {Accumulate::store, Accumulate::add}) {
        const float old = mode == Accumulate::store ? nan : 0.25f;
        const float base = mode == Accumulate::store ? 0.0f : 0.25f;
        std::vector<float> plain(values.size(), old);
        std::vector<float> from_bf16 = plain;
        std::vector<float> on_the_way = plain;
        add_gradient(values, plain, mode);
        add_gradient(rounded, from_bf16, mode);
        add_rounded_gradient(values, on_the_way, mode);
        for (size_t i = 0; i < values.size(); ++i) {
            EXPECT_EQ(plain[i], base + values[i]);
            EXPECT_EQ(from_bf16[i], base + bf16_to_float(rounded[i]));
            EXPECT_EQ(on_the_way[i], from_bf16[i]);
        }
    }
}

TEST(Gradient, SinkPutsTilesInTheirPlace) {
    std::vector<float> accumulator(6, 1.0f);
    const GradientSink sink(accumulator, Accumulate::add, offload::Dtype::bf16);
    at::Tensor tile = at::full({1, 2}, 1.00001, at::TensorOptions().dtype(at::kFloat));
    sink.add(2, tile);
    sink.add(4, tile.to(at::kBFloat16));
    EXPECT_EQ(accumulator, (std::vector<float>{1, 1, 2, 2, 2, 2}));
}

TEST(GradientDeathTest, SinkRefusesWhatLiesBeyondIt) {
    std::vector<float> accumulator(6);
    const GradientSink sink(accumulator, Accumulate::add, offload::Dtype::fp32);
    const at::Tensor tile = at::zeros({4}, at::TensorOptions().dtype(at::kFloat));
    EXPECT_DEATH(sink.add(3, tile), "CHECK failed");
}

}  // namespace
}  // namespace headrace::engine
