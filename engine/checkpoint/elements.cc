#include "engine/checkpoint/elements.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "offload/check.h"

namespace headrace::engine {

using offload::Dtype;

namespace {

template <typename Element>
Element load(const std::byte* source, uint64_t index) {
    Element element;
    std::memcpy(&element, source + index * sizeof(Element), sizeof(Element));
    return element;
}

template <typename Element>
void store(std::byte* target, uint64_t index, Element element) {
    std::memcpy(target + index * sizeof(Element), &element, sizeof(Element));
}

// `value_at(i)` gives element i as a float: exact for all three types.
template <typename ValueAt>
void store_all(const ElementTarget& target, ValueAt value_at) {
    const uint64_t element_count = target.element_count();
    std::byte* const weights = target.weights.data();
    switch (target.dtype) {
        case Dtype::fp32:
            for (uint64_t i = 0; i < element_count; ++i) store<float>(weights, i, value_at(i));
            break;
        case Dtype::fp16:
            for (uint64_t i = 0; i < element_count; ++i) {
                store<uint16_t>(weights, i, float_to_fp16(value_at(i)));
            }
            break;
        case Dtype::bf16:
            for (uint64_t i = 0; i < element_count; ++i) {
                const SplitMaster master = split_master(value_at(i));
                store<uint16_t>(weights, i, master.hi);
                if (!target.lo.empty()) target.lo[i] = master.lo;
            }
            break;
    }
}

}  // namespace

SplitMaster split_master(float value) {
    if (std::isnan(value)) return {.hi = 0x7FC0, .lo = 0};
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return {.hi = static_cast<uint16_t>((bits + 0x8000u) >> 16),
            .lo = static_cast<uint16_t>(bits & 0xFFFFu)};
}

float join_master(SplitMaster master) {
    const uint32_t rounded_up = (master.lo & 0x8000u) << 1;
    const uint32_t bits = ((static_cast<uint32_t>(master.hi) << 16) | master.lo) - rounded_up;
    return std::bit_cast<float>(bits);
}

float fp16_to_float(uint16_t bits) {
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

uint16_t float_to_fp16(float value) {
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

ElementTarget ElementTarget::piece(uint64_t first_element, uint64_t piece_count) const {
    CHECK_LE(first_element, element_count());
    CHECK_LE(piece_count, element_count() - first_element);
    ElementTarget result;
    result.dtype = dtype;
    result.weights = weights.subspan(offload::bytes_of(dtype, first_element),
                                     offload::bytes_of(dtype, piece_count));
    if (!lo.empty()) result.lo = lo.subspan(first_element, piece_count);
    return result;
}

void convert_elements(Dtype source_dtype, std::span<const std::byte> source,
                      const ElementTarget& target) {
    const std::byte* const from = source.data();
    CHECK_EQ(source.size(), offload::bytes_of(source_dtype, target.element_count()));
    CHECK(target.lo.empty() || target.dtype == Dtype::bf16);
    CHECK(target.lo.empty() || target.lo.size() == target.element_count());
    CHECK(from != target.weights.data() || source_dtype == target.dtype);
    switch (source_dtype) {
        case Dtype::fp32:
            return store_all(target, [from](uint64_t i) { return load<float>(from, i); });
        case Dtype::bf16:
            return store_all(target, [from](uint64_t i) {
                return offload::bf16_to_float(load<uint16_t>(from, i));
            });
        case Dtype::fp16:
            return store_all(target,
                             [from](uint64_t i) { return fp16_to_float(load<uint16_t>(from, i)); });
    }
    CHECK_TEXT(false, "a dtype that does not exist");
}

}  // namespace headrace::engine
