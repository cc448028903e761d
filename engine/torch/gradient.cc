#include "engine/torch/gradient.h"

namespace headrace::engine {

using offload::bf16_to_float;
using offload::Dtype;
using offload::float_to_bf16;

void add_gradient(std::span<const float> gradient, std::span<float> accumulator, Accumulate mode) {
    CHECK_EQ(gradient.size(), accumulator.size());
    const float* source = gradient.data();
    float* target = accumulator.data();
    const size_t element_count = gradient.size();
    if (mode == Accumulate::store) {
        for (size_t i = 0; i < element_count; ++i) target[i] = source[i];
    } else {
        for (size_t i = 0; i < element_count; ++i) target[i] += source[i];
    }
}

void add_gradient(std::span<const uint16_t> bf16_gradient, std::span<float> accumulator,
                  Accumulate mode) {
    CHECK_EQ(bf16_gradient.size(), accumulator.size());
    const uint16_t* source = bf16_gradient.data();
    float* target = accumulator.data();
    const size_t element_count = bf16_gradient.size();
    if (mode == Accumulate::store) {
        for (size_t i = 0; i < element_count; ++i) target[i] = bf16_to_float(source[i]);
    } else {
        for (size_t i = 0; i < element_count; ++i) target[i] += bf16_to_float(source[i]);
    }
}

void add_rounded_gradient(std::span<const float> gradient, std::span<float> accumulator,
                          Accumulate mode) {
    CHECK_EQ(gradient.size(), accumulator.size());
    const float* source = gradient.data();
    float* target = accumulator.data();
    const size_t element_count = gradient.size();
    if (mode == Accumulate::store) {
        for (size_t i = 0; i < element_count; ++i) {
            target[i] = bf16_to_float(float_to_bf16(source[i]));
        }
    } else {
        for (size_t i = 0; i < element_count; ++i) {
            target[i] += bf16_to_float(float_to_bf16(source[i]));
        }
    }
}

void GradientSink::add(uint64_t first_element, const at::Tensor& tile) const {
    CHECK(tile.is_contiguous());
    const uint64_t element_count = static_cast<uint64_t>(tile.numel());
    CHECK_LE(first_element + element_count, accumulator_.size());
    const std::span<float> target = accumulator_.subspan(first_element, element_count);
    if (tile.scalar_type() == at::kFloat) {
        const std::span<const float> source(tile.const_data_ptr<float>(), element_count);
        if (dtype_ == Dtype::bf16) {
            add_rounded_gradient(source, target, mode_);
        } else {
            add_gradient(source, target, mode_);
        }
    } else {
        CHECK(tile.scalar_type() == at::kBFloat16);
        CHECK(dtype_ == Dtype::bf16);
        const auto* bits = reinterpret_cast<const uint16_t*>(tile.const_data_ptr<at::BFloat16>());
        add_gradient(std::span<const uint16_t>(bits, element_count), target, mode_);
    }
}

}  // namespace headrace::engine
