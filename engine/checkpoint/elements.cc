#include "engine/checkpoint/elements.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "offload/check.h"
#include "offload/fp16.h"

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
                const float value = value_at(i);
                store<uint16_t>(weights, i, offload::float_to_fp16(value));
                if (!target.master.empty()) target.master[i] = value;
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

ElementTarget ElementTarget::piece(uint64_t first_element, uint64_t piece_count) const {
    CHECK_LE(first_element, element_count());
    CHECK_LE(piece_count, element_count() - first_element);
    ElementTarget result;
    result.dtype = dtype;
    result.weights = weights.subspan(offload::bytes_of(dtype, first_element),
                                     offload::bytes_of(dtype, piece_count));
    if (!lo.empty()) result.lo = lo.subspan(first_element, piece_count);
    if (!master.empty()) result.master = master.subspan(first_element, piece_count);
    return result;
}

void convert_elements(Dtype source_dtype, std::span<const std::byte> source,
                      const ElementTarget& target) {
    const std::byte* const from = source.data();
    CHECK_EQ(source.size(), offload::bytes_of(source_dtype, target.element_count()));
    CHECK(target.lo.empty() || target.dtype == Dtype::bf16);
    CHECK(target.lo.empty() || target.lo.size() == target.element_count());
    CHECK(target.master.empty() || target.dtype == Dtype::fp16);
    CHECK(target.master.empty() || target.master.size() == target.element_count());
    CHECK(from != target.weights.data() || source_dtype == target.dtype);
    switch (source_dtype) {
        case Dtype::fp32:
            return store_all(target, [from](uint64_t i) { return load<float>(from, i); });
        case Dtype::bf16:
            return store_all(target, [from](uint64_t i) {
                return offload::bf16_to_float(load<uint16_t>(from, i));
            });
        case Dtype::fp16:
            return store_all(target, [from](uint64_t i) {
                return offload::fp16_to_float(load<uint16_t>(from, i));
            });
    }
    CHECK_TEXT(false, "a dtype that does not exist");
}

}  // namespace headrace::engine
