// The element types of weights and gradients, and the exact conversions between them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "offload/result.h"

namespace headrace::offload {

enum class Dtype : uint8_t { fp32, bf16, fp16 };

constexpr uint64_t element_bytes(Dtype dtype) {
    return dtype == Dtype::fp32 ? 4 : 2;
}

// element_count elements of `dtype`, in bytes.
constexpr uint64_t bytes_of(Dtype dtype, uint64_t element_count) {
    return element_bytes(dtype) * element_count;
}

std::string_view name_of(Dtype dtype);             // "fp32", "bf16", "fp16"
Result<Dtype> parse_dtype(std::string_view name);  // also float32, bfloat16, float16, half

// bf16 is the upper half of an fp32: widening is exact.
inline float bf16_to_float(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even, as torch does; every NaN becomes 0x7FC0.
inline uint16_t float_to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
    return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace headrace::offload
