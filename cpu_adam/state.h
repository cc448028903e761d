// The bytes of one part's optimizer state, and the update of a range of one part.
//
// The state of a part of n elements lies in one run of bytes, `opt_bytes` long:
//   bf16 weights:  m float[n], v float[n], lo uint16[n]     10 n bytes
//   fp32 weights:  m float[n], v float[n]                    8 n bytes
// A fresh state is all zeros: m = v = 0, and lo = 0 says that the master equals the weight.
//
// Views never own. Different ranges of one part may be updated by different threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "cpu_adam/adamw.h"
#include "cpu_adam/variants.h"
#include "offload/dtype.h"

namespace headrace::cpu_adam {

// Bytes of optimizer state for element_count weights of weight_dtype: bf16 or fp32 (CHECK).
uint64_t opt_bytes(offload::Dtype weight_dtype, uint64_t element_count);

struct StateView {
    std::span<float> m;
    std::span<float> v;
    std::span<uint16_t> lo;  // empty for fp32 weights
};

// The view of the first opt_bytes of `bytes`, which may be longer and is aligned to 4 (CHECK).
StateView view_state(offload::Dtype weight_dtype, std::span<std::byte> bytes,
                     uint64_t element_count);

struct ElementRange {
    uint64_t first_element = 0;
    uint64_t element_count = 0;
    bool operator==(const ElementRange&) const = default;
};

// One part at its update. `weight` and `gradient` hold element_count elements of their dtypes,
// bf16 or fp32; longer spans are cut.
struct PartUpdate {
    uint64_t element_count = 0;
    offload::Dtype weight_dtype = offload::Dtype::bf16;
    offload::Dtype gradient_dtype = offload::Dtype::bf16;
    std::span<std::byte> weight;
    std::span<std::byte> state;
    std::span<const std::byte> gradient;
    // Where not null, UpdatePool calls it with every range that is done, on the thread that did it
    // and while its bytes are in that thread's cache: multiples of 2048 elements, each once.
    const std::function<void(ElementRange)>* on_updated = nullptr;
};

// Updates a range of the part on the calling thread. The thread rounds to nearest and keeps
// denormals, and the machine has the row's instruction set (CHECK).
void update_range(const Row& row, const StepFactors& factors, const PartUpdate& part,
                  ElementRange range);

}  // namespace headrace::cpu_adam
