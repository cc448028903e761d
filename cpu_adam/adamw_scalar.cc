// The rule, one element at a time, in the words of cpu_adam/adamw.h. std::fma is correctly rounded
// with or without the instruction, so this row runs everywhere and is the oracle of the others.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu_adam/adamw.h"
#include "cpu_adam/rounding.h"
#include "offload/dtype.h"
#include "offload/fp16.h"

namespace headrace::cpu_adam {

using offload::bf16_to_float;

namespace {

constexpr uint64_t block_elements = 32;

float one_nan(float value) {
    return std::isnan(value) ? std::bit_cast<float>(0x7FC00000u) : value;
}

float join(uint16_t hi, uint16_t lo) {
    const uint32_t rounded_up = static_cast<uint32_t>(lo & 0x8000u) << 1;
    return std::bit_cast<float>((static_cast<uint32_t>(hi) << 16) + lo - rounded_up);
}

void split(float value, uint16_t* hi, uint16_t* lo) {
    const auto bits = std::bit_cast<uint32_t>(value);
    *hi = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    *lo = static_cast<uint16_t>(bits & 0xFFFFu);
}

float gradient_at(const Operands& o, uint64_t i) {
    if (o.gradient_fp32 != nullptr) return o.gradient_fp32[i];
    if (o.gradient_fp16 != nullptr) return offload::fp16_to_float(o.gradient_fp16[i]);
    return bf16_to_float(o.gradient_bf16[i]);
}

float weight_at(const Operands& o, uint64_t i) {
    return o.weight != nullptr ? o.weight[i] : join(o.hi[i], o.lo[i]);
}

void store_weight(const Operands& o, uint64_t i, float w) {
    const bool has_master = o.weight == nullptr || o.weight_fp16 != nullptr;
    if (o.weight_fp16 != nullptr) o.weight_fp16[i] = offload::float_to_fp16(w);
    uint16_t lo = 0;
    if (o.weight == nullptr) split(w, o.hi + i, &lo);
    if (has_master && o.writes == Writes::weight) return;
    if (o.weight == nullptr) {
        o.lo[i] = lo;
    } else {
        o.weight[i] = w;
    }
}

struct Moments {
    float m[block_elements];
    float v[block_elements];
};

// Elements [first, first + count) are of one block.
Moments moments_of(const Operands& o, uint64_t first, uint64_t count) {
    Moments moments{};
    for (uint64_t k = 0; k < count; ++k) {
        const uint64_t i = first + k;
        if (o.m != nullptr) {
            moments.m[k] = o.m[i];
            moments.v[k] = o.v[i];
        } else if (o.m_bf16 != nullptr) {
            moments.m[k] = bf16_to_float(o.m_bf16[i]);
            moments.v[k] = bf16_to_float(o.v_bf16[i]);
        } else {
            const uint16_t* steps = o.steps + 2 * (first / block_elements);
            moments.m[k] = load_m(o.m_int8[i], steps[0]);
            moments.v[k] = load_v(o.root_uint8[i], steps[1]);
        }
    }
    return moments;
}

void store_moments(const Operands& o, uint64_t first, uint64_t count, const Moments& moments) {
    uint32_t random[block_elements];
    for (uint64_t k = 0; k < count; ++k) {
        random[k] = random_bits(o.rounding, o.first_element + first + k);
    }
    if (o.m_int8 != nullptr) {
        uint16_t* steps = o.steps + 2 * (first / block_elements);
        return store_block({moments.m, count}, {moments.v, count}, {random, count},
                           {.m = {o.m_int8 + first, count},
                            .root = {o.root_uint8 + first, count},
                            .steps = std::span<uint16_t, 2>(steps, 2)});
    }
    for (uint64_t k = 0; k < count; ++k) {
        const uint64_t i = first + k;
        if (o.m != nullptr) {
            o.m[i] = moments.m[k];
            o.v[i] = moments.v[k];
        } else {
            o.m_bf16[i] = to_bf16(moments.m[k], random[k] & 0xFFFFu);
            o.v_bf16[i] = to_bf16(moments.v[k], random[k] >> 16);
        }
    }
}

// Returns the new weight; m and v in place.
float update_one(const StepFactors& factors, float w, float gradient, float* m, float* v) {
    const float g = std::fma(factors.l2, w, gradient * factors.gradient_scale);
    *m = one_nan(std::fma(factors.m_rate, g - *m, *m));
    const float square = g * g;
    const float q = square < 0x1p127f ? square : 0x1p127f;
    *v = one_nan(std::fma(factors.v_rate, q - *v, *v));
    const float r = std::sqrt(*v);
    const float d = std::fma(r, factors.root_scale, factors.epsilon);
    const float u = factors.step_size * (*m / d);
    return one_nan(w - std::fma(factors.decay, w, u));
}

}  // namespace

void update_scalar(const StepFactors& factors, const Operands& o) {
    for (uint64_t first = 0; first < o.element_count; first += block_elements) {
        const uint64_t count = std::min(block_elements, o.element_count - first);
        Moments moments = moments_of(o, first, count);
        for (uint64_t k = 0; k < count; ++k) {
            const uint64_t i = first + k;
            store_weight(o, i,
                         update_one(factors, weight_at(o, i), gradient_at(o, i), &moments.m[k],
                                    &moments.v[k]));
        }
        if (o.writes == Writes::weight_and_state) store_moments(o, first, count, moments);
    }
}

}  // namespace headrace::cpu_adam
