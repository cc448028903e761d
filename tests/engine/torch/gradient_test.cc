// Goal: gradients enter the accumulators in one pass, rounded once, stored or added exactly.
// Method: tables of awkward values and odd counts, against the definition element by element.
#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/torch/gradient.h"
#include "kernels/host/row_kernels.h"
#include "offload/fp16.h"

namespace headrace::engine {
namespace {

using kernels::Element;
using offload::bf16_to_float;
using offload::Dtype;
using offload::float_to_bf16;
using offload::float_to_fp16;
using offload::fp16_to_float;

std::vector<float> awkward_values() {
    return {0.0f, -0.0f, 1.0f, -1.00390625f, 1.01171875f, 3.0e38f, 1e-40f, -7.7f, 65504.0f};
}

TEST(Gradient, AddsAndStoresInEveryForm) {
    const std::vector<float> values = awkward_values();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto rounded = [](float value, Dtype dtype) {
        if (dtype == Dtype::bf16) return bf16_to_float(float_to_bf16(value));
        return dtype == Dtype::fp16 ? fp16_to_float(float_to_fp16(value)) : value;
    };
    for (const Accumulate mode : {Accumulate::store, Accumulate::add}) {
        const float old = mode == Accumulate::store ? nan : 0.25f;
        const float base = mode == Accumulate::store ? 0.0f : 0.25f;
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
            std::vector<uint16_t> narrow;
            for (const float value : values) {
                narrow.push_back(dtype == Dtype::bf16 ? float_to_bf16(value)
                                                      : float_to_fp16(value));
            }
            std::vector<float> on_the_way(values.size(), old);
            std::vector<float> from_narrow = on_the_way;
            add_gradient({values.data(), Element::fp32}, dtype, on_the_way, mode);
            const Gradient given = dtype == Dtype::fp32
                                       ? Gradient{values.data(), Element::fp32}
                                       : Gradient{narrow.data(), kernels::element_of(dtype)};
            add_gradient(given, dtype, from_narrow, mode);
            for (size_t i = 0; i < values.size(); ++i) {
                EXPECT_EQ(on_the_way[i], base + rounded(values[i], dtype));
                EXPECT_EQ(from_narrow[i], on_the_way[i]);
            }
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
