// One element of the AdamW update, for whichever compiler includes it: the host twin and the card
// run this one text. The operations and their order are those of cpu_adam/adamw.h, which argues
// for them.
//
// Every operation is rounded to nearest even, and none may be fused or split by a compiler. On the
// host -ffp-contract=off sees to it; on the card each is named by the intrinsic that says so, for
// which there is no other code to choose (ptxas may fuse a bare a * b + c, but no *_rn).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/adamw.h"

#if defined(__CUDACC__)
#define HEADRACE_ANYWHERE __host__ __device__
#else
#define HEADRACE_ANYWHERE
#endif

namespace headrace::kernels::adamw_rule {

namespace {

#if defined(__CUDA_ARCH__)
HEADRACE_ANYWHERE inline float fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}
HEADRACE_ANYWHERE inline float multiply(float a, float b) {
    return __fmul_rn(a, b);
}
HEADRACE_ANYWHERE inline float subtract(float a, float b) {
    return __fsub_rn(a, b);
}
HEADRACE_ANYWHERE inline float divide(float a, float b) {
    return __fdiv_rn(a, b);
}
HEADRACE_ANYWHERE inline float root(float a) {
    return __fsqrt_rn(a);
}
HEADRACE_ANYWHERE inline float as_float(uint32_t bits) {
    return __uint_as_float(bits);
}
HEADRACE_ANYWHERE inline uint32_t as_bits(float value) {
    return __float_as_uint(value);
}
#else
HEADRACE_ANYWHERE inline float fma(float a, float b, float c) {
    return std::fma(a, b, c);
}
HEADRACE_ANYWHERE inline float multiply(float a, float b) {
    return a * b;
}
HEADRACE_ANYWHERE inline float subtract(float a, float b) {
    return a - b;
}
HEADRACE_ANYWHERE inline float divide(float a, float b) {
    return a / b;
}
HEADRACE_ANYWHERE inline float root(float a) {
    return std::sqrt(a);
}
HEADRACE_ANYWHERE inline float as_float(uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));  // std::bit_cast is C++20, nvcc here is given 17
    return value;
}
HEADRACE_ANYWHERE inline uint32_t as_bits(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}
#endif

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

// Element i of the operands, of any format.
HEADRACE_ANYWHERE inline void update_element(const UpdateFactors& factors, const UpdateOperands& o,
                                             uint64_t i) {
    const float gradient =
        o.gradient_fp32 != nullptr ? o.gradient_fp32[i] : bf16_value(o.gradient_bf16[i]);
    const bool is_narrow = o.m_bf16 != nullptr;
    float m = is_narrow ? bf16_value(o.m_bf16[i]) : o.m[i];
    float v = is_narrow ? bf16_value(o.v_bf16[i]) : o.v[i];
    const float w = o.weight != nullptr ? o.weight[i] : join(o.hi[i], o.lo[i]);
    const float updated = update(factors, w, gradient, m, v);
    if (o.weight != nullptr) {
        o.weight[i] = updated;
    } else {
        split(updated, o.hi[i], o.lo[i]);
    }
    if (is_narrow) {
        const uint32_t random = random_bits(o.rounding, o.first_element + i);
        o.m_bf16[i] = to_bf16(m, random & 0xFFFFu);
        o.v_bf16[i] = to_bf16(v, random >> 16);
    } else {
        o.m[i] = m;
        o.v[i] = v;
    }
}

}  // namespace

}  // namespace headrace::kernels::adamw_rule
