// The bytes of one part's optimizer state, and the update of a range of one part.
//
// Where m, v, their steps and lo or the master lie: offload/state_format.h; what they mean:
// cpu_adam/rounding.h. A fresh state is all zeros: m = v = 0, and lo = 0 says that the master
// equals the weight. Of an fp16 weight the master is the weight, widened.
//
// Views never own. Different ranges of one part may be updated by different threads at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "cpu_adam/adamw.h"
#include "cpu_adam/rounding.h"
#include "cpu_adam/variants.h"
#include "offload/dtype.h"
#include "offload/state_format.h"

namespace headrace::cpu_adam {

using offload::StateFormat;

// Each span is empty unless the format has it.
struct StateView {
    std::span<float> m;
    std::span<float> v;
    std::span<uint16_t> lo;     // of a bf16 weight
    std::span<float> master{};  // of an fp16 weight
    std::span<uint16_t> m_bf16{};
    std::span<uint16_t> v_bf16{};
    std::span<int8_t> m_int8{};
    std::span<uint8_t> root_uint8{};
    std::span<uint16_t> steps{};  // two per block: of m, of root
};

// The view of the first opt_bytes of `bytes`, which may be longer and is aligned to 4 (CHECK).
StateView view_state(offload::Dtype weight_dtype, StateFormat format, std::span<std::byte> bytes,
                     uint64_t element_count);

struct ElementRange {
    uint64_t first_element = 0;
    uint64_t element_count = 0;
    bool operator==(const ElementRange&) const = default;
};

// The bytes of the state that belong to the elements of a range, by section: m, v, steps, lo or
// master; absent ones are empty. A range begins at a block and ends at one or with the part
// (CHECK); the last takes the padding behind it, so ranges that cover the part cover its bytes.
struct ByteRange {
    uint64_t offset_bytes = 0;
    uint64_t size_bytes = 0;
    bool operator==(const ByteRange&) const = default;
};
struct StateExtent {
    offload::Dtype weight_dtype = offload::Dtype::bf16;
    StateFormat format = StateFormat::fp32;
    uint64_t element_count = 0;
};
std::array<ByteRange, 4> sections_of(const StateExtent& part, ElementRange range);

// One part at its update. `weight` and `gradient` hold element_count elements of their dtypes;
// longer spans are cut.
struct PartUpdate {
    uint64_t element_count = 0;
    offload::Dtype weight_dtype = offload::Dtype::bf16;
    StateFormat format = StateFormat::fp32;
    offload::Dtype gradient_dtype = offload::Dtype::bf16;
    std::span<std::byte> weight;
    std::span<std::byte> state;
    std::span<const std::byte> gradient;
    // For bf16 and int8: the key, and where the part begins in its layer's flat run, in int8 at a
    // multiple of 32 (CHECK).
    RoundingKey rounding{};
    uint64_t first_element = 0;
    Writes writes = Writes::weight_and_state;
    // Where not null, UpdatePool calls it with every range that is done, on the thread that did it
    // and while its bytes are in that thread's cache: multiples of page_elements, each once.
    const std::function<void(ElementRange)>* on_updated = nullptr;
};

// The shares that a range (as of sections_of) has in the sums of the places of a part's weight and
// of its state (offload/page_sum.h). The views begin at pages of their places.
struct RangeSums {
    uint64_t weight = 0;
    uint64_t state = 0;
};
RangeSums sums_of(const PartUpdate& part, ElementRange range);

// Updates a range of the part on the calling thread; in int8 it begins at a block and ends at one
// or with the part. The thread rounds to nearest and keeps denormals, and the machine has the
// row's instruction set (CHECK).
void update_range(const Row& row, const StepFactors& factors, const PartUpdate& part,
                  ElementRange range);

}  // namespace headrace::cpu_adam
