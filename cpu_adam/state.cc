#include "cpu_adam/state.h"

#include <xmmintrin.h>

#include "offload/check.h"
#include "offload/schedule.h"

namespace headrace::cpu_adam {

using offload::Dtype;

namespace {

bool is_aligned(const std::byte* address, uint64_t alignment_bytes) {
    return reinterpret_cast<uintptr_t>(address) % alignment_bytes == 0;
}

// Flush to zero, denormals are zero and the rounding mode: bits 15, 6 and 14-13 of MXCSR. Somebody
// else's library may have set them on the thread it was given.
bool thread_rounds_as_ieee() {
    return (_mm_getcsr() & 0xE040u) == 0;
}

}  // namespace

uint64_t opt_bytes(Dtype weight_dtype, uint64_t element_count) {
    return offload::opt_bytes(weight_dtype, element_count);  // the schedule's count of the same
}

StateView view_state(Dtype weight_dtype, std::span<std::byte> bytes, uint64_t element_count) {
    CHECK_GE(bytes.size(), offload::opt_bytes(weight_dtype, element_count));
    CHECK(is_aligned(bytes.data(), alignof(float)));
    auto* m = reinterpret_cast<float*>(bytes.data());
    StateView view{.m = {m, element_count}, .v = {m + element_count, element_count}, .lo = {}};
    if (weight_dtype == Dtype::bf16) {
        view.lo = {reinterpret_cast<uint16_t*>(m + 2 * element_count), element_count};
    }
    return view;
}

void update_range(const Row& row, const StepFactors& factors, const PartUpdate& part,
                  ElementRange range) {
    CHECK(is_supported(row));
    CHECK(thread_rounds_as_ieee());
    CHECK_LE(range.first_element, part.element_count);
    CHECK_LE(range.element_count, part.element_count - range.first_element);
    CHECK(part.gradient_dtype != Dtype::fp16);
    CHECK_GE(part.weight.size(), bytes_of(part.weight_dtype, part.element_count));
    CHECK_GE(part.gradient.size(), bytes_of(part.gradient_dtype, part.element_count));
    CHECK(is_aligned(part.weight.data(), element_bytes(part.weight_dtype)));
    CHECK(is_aligned(part.gradient.data(), element_bytes(part.gradient_dtype)));
    if (range.element_count == 0) return;

    const StateView state = view_state(part.weight_dtype, part.state, part.element_count);
    const uint64_t first = range.first_element;
    Operands operands{.element_count = range.element_count,
                      .m = state.m.data() + first,
                      .v = state.v.data() + first};
    if (part.weight_dtype == Dtype::bf16) {
        operands.hi = reinterpret_cast<uint16_t*>(part.weight.data()) + first;
        operands.lo = state.lo.data() + first;
    } else {
        operands.weight = reinterpret_cast<float*>(part.weight.data()) + first;
    }
    if (part.gradient_dtype == Dtype::bf16) {
        operands.gradient_bf16 = reinterpret_cast<const uint16_t*>(part.gradient.data()) + first;
    } else {
        operands.gradient_fp32 = reinterpret_cast<const float*>(part.gradient.data()) + first;
    }
    row.update(factors, operands);
}

}  // namespace headrace::cpu_adam
