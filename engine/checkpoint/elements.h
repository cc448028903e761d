// Exact conversions between the element types of a checkpoint and those of a run. Pure functions.
//
// The master of a bf16 weight is an fp32 value in two halves: hi, the bf16 that computes, and lo.
//   bits = 0x3F80C000 (1.005859375):  hi = (bits + 0x8000) >> 16 = 0x3F81,  lo = 0xC000
// lo >= 0x8000 tells that hi was rounded up. Lossless for every value but NaN, which becomes
// 0x7FC00000. Ties are rounded away from zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "offload/dtype.h"

namespace headrace::engine {

struct SplitMaster {
    uint16_t hi = 0;
    uint16_t lo = 0;
    bool operator==(const SplitMaster&) const = default;
};

SplitMaster split_master(float value);
float join_master(SplitMaster master);

// Where elements go. `weights` holds the elements in `dtype`. For bf16 they are the hi halves, and
// `lo`, unless it is empty, holds as many lower halves: hi and lo together are the source, exactly.
// For fp16 `master`, unless it is empty, holds the source itself, exactly.
struct ElementTarget {
    offload::Dtype dtype = offload::Dtype::fp32;
    std::span<std::byte> weights;  // aligned for its elements
    std::span<uint16_t> lo;        // bf16 only
    std::span<float> master = {};  // fp16 only

    uint64_t element_count() const { return weights.size() / offload::element_bytes(dtype); }
    // A part of it. CHECKs the range.
    ElementTarget piece(uint64_t first_element, uint64_t element_count) const;
};

// `source` holds target.element_count() elements of source_dtype, at any alignment; it may be
// target.weights itself if the dtypes are equal.
void convert_elements(offload::Dtype source_dtype, std::span<const std::byte> source,
                      const ElementTarget& target);

}  // namespace headrace::engine
