// One element, or one block in int8, of the AdamW update, for whichever compiler includes it: the
// host twin and the card run this one text. The operations and their order are those of
// cpu_adam/adamw.h and cpu_adam/rounding.h, which argue for them.
#pragma once

#include <cstdint>

#include "kernels/adamw.h"
#include "kernels/adamw_arithmetic.h"

namespace headrace::kernels::adamw_rule {

namespace {

HEADRACE_ANYWHERE inline float bf16_value(uint16_t bits) {
    return as_float(static_cast<uint32_t>(bits) << 16);
}

// The fp32 master of a split weight.
HEADRACE_ANYWHERE inline float join(uint16_t hi, uint16_t lo) {
    const uint32_t rounded_up = static_cast<uint32_t>(lo & 0x8000u) << 1;
    return as_float((static_cast<uint32_t>(hi) << 16) + lo - rounded_up);
}

// Every NaN becomes 0x7FC00000.
HEADRACE_ANYWHERE inline float one_nan(float value) {
    return value == value ? value : as_float(0x7FC00000u);
}

// The halves of a master.
HEADRACE_ANYWHERE inline void split(float value, uint16_t& hi, uint16_t& lo) {
    const uint32_t bits = as_bits(value);
    hi = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    lo = static_cast<uint16_t>(bits & 0xFFFFu);
}

// The 32 random bits of an element: m takes the lower half, v the upper.
HEADRACE_ANYWHERE inline uint32_t random_bits(const RoundingBits& bits, uint64_t element) {
    uint32_t x = static_cast<uint32_t>(element) + bits.first;
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = ((x ^ x >> 15) + bits.second) * 0x846CA68Bu;
    return x ^ x >> 16;
}

// Rounded up with the probability that is the part cut off. random_16 < 2^16.
HEADRACE_ANYWHERE inline uint16_t to_bf16(float value, uint32_t random_16) {
    if (value != value) return 0x7FC0;
    return static_cast<uint16_t>((as_bits(value) + random_16) >> 16);
}

// The new weight; m and v in place.
HEADRACE_ANYWHERE inline float update(const UpdateFactors& factors, float w, float gradient,
                                      float& m, float& v) {
    const float g = fma(factors.l2, w, multiply(gradient, factors.gradient_scale));
    m = one_nan(fma(factors.m_rate, subtract(g, m), m));
    constexpr float largest = 1.70141183e38f;  // 2^127
    const float square = multiply(g, g);
    const float q = square < largest ? square : largest;
    v = one_nan(fma(factors.v_rate, subtract(q, v), v));
    const float d = fma(root(v), factors.root_scale, factors.epsilon);
    const float u = multiply(factors.step_size, divide(m, d));
    return one_nan(subtract(w, fma(factors.decay, w, u)));
}

HEADRACE_ANYWHERE inline float gradient_at(const UpdateOperands& o, uint64_t i) {
    return o.gradient_fp32 != nullptr ? o.gradient_fp32[i] : bf16_value(o.gradient_bf16[i]);
}

HEADRACE_ANYWHERE inline float weight_at(const UpdateOperands& o, uint64_t i) {
    return o.weight != nullptr ? o.weight[i] : join(o.hi[i], o.lo[i]);
}

HEADRACE_ANYWHERE inline void store_weight(const UpdateOperands& o, uint64_t i, float w) {
    if (o.weight != nullptr) {
        o.weight[i] = w;
    } else {
        split(w, o.hi[i], o.lo[i]);
    }
}

// Element i of operands whose moments are not in int8.
HEADRACE_ANYWHERE inline void update_element(const UpdateFactors& factors, const UpdateOperands& o,
                                             uint64_t i) {
    const bool is_narrow = o.m_bf16 != nullptr;
    float m = is_narrow ? bf16_value(o.m_bf16[i]) : o.m[i];
    float v = is_narrow ? bf16_value(o.v_bf16[i]) : o.v[i];
    store_weight(o, i, update(factors, weight_at(o, i), gradient_at(o, i), m, v));
    if (is_narrow) {
        const uint32_t random = random_bits(o.rounding, o.first_element + i);
        o.m_bf16[i] = to_bf16(m, random & 0xFFFFu);
        o.v_bf16[i] = to_bf16(v, random >> 16);
    } else {
        o.m[i] = m;
        o.v[i] = v;
    }
}

constexpr uint64_t int8_block = 32;

// The step of a block whose largest magnitude has these bits: rounded up to bf16.
HEADRACE_ANYWHERE inline uint16_t step_of(uint32_t largest, float levels_inverse) {
    if (largest == 0) return 0;
    if (largest >= 0x7F800000u) return 0x7FC0;
    const float exact = multiply(as_float(largest), levels_inverse);
    const float least = as_float(0x0D800000u);  // 2^-100
    return static_cast<uint16_t>((as_bits(exact < least ? least : exact) + 0xFFFFu) >> 16);
}

// 65536 / step; a block of zeros has the step 0.
HEADRACE_ANYWHERE inline float inverse_of(uint16_t step) {
    return step == 0 ? 0.0f : divide(65536.0f, bf16_value(step));
}

// The value in steps, rounded at random; what is no int32 is taken as the least.
HEADRACE_ANYWHERE inline int32_t in_steps(float value, float inverse, uint32_t random_16) {
    const float scaled = multiply(value, inverse);
    const bool is_int = scaled > -2147483648.0f && scaled < 2147483648.0f;
    const int32_t least = -2147483647 - 1;
    return ((is_int ? nearest_int(scaled) : least) + static_cast<int32_t>(random_16)) >> 16;
}

HEADRACE_ANYWHERE inline int32_t clamped(int32_t value, int32_t least, int32_t most) {
    return value < least ? least : value > most ? most : value;
}

struct Int8Steps {
    float m = 0;
    float root = 0;
};

// m and v of element i as they are kept.
HEADRACE_ANYWHERE inline void load_int8(const UpdateOperands& o, uint64_t i, const Int8Steps& steps,
                                        float& m, float& v) {
    m = multiply(static_cast<float>(o.m_int8[i]), steps.m);
    const float value = multiply(static_cast<float>(o.root_uint8[i]), steps.root);
    v = multiply(value, value);
}

// Up to 32 elements from `first` that share their steps. The update is computed twice, first for
// the largest m and v alone: a card has arithmetic to spare, and registers for 32 elements not.
HEADRACE_ANYWHERE inline void update_block(const UpdateFactors& factors, const UpdateOperands& o,
                                           uint64_t first, uint64_t count) {
    uint16_t* steps = o.steps + 2 * (first / int8_block);
    const Int8Steps before = {bf16_value(steps[0]), bf16_value(steps[1])};
    uint32_t largest_m = 0;
    uint32_t largest_v = 0;
    for (uint64_t i = first; i < first + count; ++i) {
        float m, v;
        load_int8(o, i, before, m, v);
        update(factors, weight_at(o, i), gradient_at(o, i), m, v);
        const uint32_t m_bits = as_bits(m) & 0x7FFFFFFFu;
        const uint32_t v_bits = as_bits(v) & 0x7FFFFFFFu;
        largest_m = m_bits > largest_m ? m_bits : largest_m;
        largest_v = v_bits > largest_v ? v_bits : largest_v;
    }
    const uint32_t largest_root = as_bits(root(as_float(largest_v))) & 0x7FFFFFFFu;
    const uint16_t m_step = step_of(largest_m, 1.0f / 127);
    const uint16_t root_step = step_of(largest_root, 1.0f / 255);
    const float m_inverse = inverse_of(m_step);
    const float root_inverse = inverse_of(root_step);
    for (uint64_t i = first; i < first + count; ++i) {
        float m, v;
        load_int8(o, i, before, m, v);
        store_weight(o, i, update(factors, weight_at(o, i), gradient_at(o, i), m, v));
        const uint32_t random = random_bits(o.rounding, o.first_element + i);
        const int32_t m_steps = in_steps(m, m_inverse, random & 0xFFFFu);
        const int32_t root_steps = in_steps(root(v), root_inverse, random >> 16);
        o.m_int8[i] = static_cast<int8_t>(clamped(m_steps, -128, 127));
        o.root_uint8[i] = static_cast<uint8_t>(clamped(root_steps, v == 0 ? 0 : 1, 255));
    }
    steps[0] = m_step;
    steps[1] = root_step;
}

}  // namespace

}  // namespace headrace::kernels::adamw_rule
