// fp16 (IEEE half precision) and fp32: exact one way, rounded the other. Written down once for
// checkpoints, gradients and weights; rows with instruction sets must give the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace headrace::offload {

inline constexpr float fp16_max = 65504.0f;

inline float fp16_to_float(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1Fu;
    const uint32_t fraction = bits & 0x3FFu;
    constexpr uint32_t bias_difference = 127 - 15;
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact
        const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
        return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
    }
    const uint32_t widened = exponent == 0x1F ? 0xFFu : exponent + bias_difference;
    return std::bit_cast<float>(sign | (widened << 23) | (fraction << 13));
}

// Rounds to nearest, ties to even; too large becomes infinity, every NaN a quiet one.
inline uint16_t float_to_fp16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    constexpr uint32_t infinity_bits = 0x7F800000;
    constexpr uint32_t overflow_bits = 0x477FF000;        // 65520, half way to 2^16
    constexpr uint32_t normal_bits_min = 0x38800000;      // 2^-14
    constexpr uint32_t bias_difference_bits = 112 << 10;  // of the exponents, in place
    if (magnitude > infinity_bits) return static_cast<uint16_t>(sign | 0x7E00u);
    if (magnitude >= overflow_bits) return static_cast<uint16_t>(sign | 0x7C00u);
    if (magnitude < normal_bits_min) {
        // At 0.5 a float steps by 2^-24, as a subnormal fp16 does: the addition rounds for us.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
    }
    const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - bias_difference_bits));
}

}  // namespace headrace::offload
