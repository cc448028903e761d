// StateFormat: how the optimizer states of a weight are kept, and where they lie in the bytes of
// one part. cpu_adam/rounding.h says what the numbers mean; this is their size and order, once, for
// slots, places, updates and reports.
//
// The state of a part of n elements lies in one run of bytes, four sections one after another:
//
//   format   m          v          steps        bf16 weight   fp16 weight    fp32 weight
//   fp32     float[n]   float[n]   -            lo u16[n]     master f32[n]  -
//   bf16     bf16[n]    bf16[n]    -            lo u16[n]     master f32[n]  -
//   int8     int8[n]    uint8[n]   bf16[n/16]   lo u16[n]     master f32[n]  -
//
// `steps` holds two bf16 per block of 32 elements of the layer's flat run. In int8 each of m, v and
// steps is padded to a multiple of page_bytes, so that a range of elements whose bounds are
// multiples of page_elements has whole pages of its own in every section and its checksum can be
// taken alone. Elsewhere nothing is padded. Bytes per element, without the weight's own:
//
//   format   bf16 weight   fp16 weight   fp32 weight
//   fp32     10            12            8
//   bf16      6             8            4
//   int8      4.125         6.125        2.125
//
// A fresh state is all zeros (an fp16 weight's master excepted). Pure values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "offload/dtype.h"
#include "offload/result.h"

namespace headrace::offload {

enum class StateFormat : uint8_t { fp32, bf16, int8 };

std::string_view name_of(StateFormat format);                   // "fp32", "bf16", "int8"
Result<StateFormat> parse_state_format(std::string_view name);  // Error (usage) names the three

// Elements that share their two steps in int8. Tensors begin at multiples of it.
inline constexpr uint64_t state_block_elements = 32;

// The bytes of each section, without padding: m, v, steps, lo or master.
std::array<uint64_t, 4> section_bytes(Dtype weight, StateFormat format, uint64_t element_count);

// Where the sections begin. An absent section has no bytes.
struct StateLayout {
    uint64_t m_offset_bytes = 0;
    uint64_t v_offset_bytes = 0;
    uint64_t steps_offset_bytes = 0;
    uint64_t master_offset_bytes = 0;  // lo of a bf16 weight, the master of an fp16 weight
    uint64_t size_bytes = 0;
    bool operator==(const StateLayout&) const = default;
};
StateLayout state_layout(Dtype weight, StateFormat format, uint64_t element_count);

// The bytes of optimizer state beside element_count weights: the size of the layout.
uint64_t opt_bytes(Dtype weight, StateFormat format, uint64_t element_count);

// Ranges of elements between multiples of this have pages of their own: 2048, in int8 32768.
uint64_t page_elements(StateFormat format);

}  // namespace headrace::offload
