#include "kernels/adamw.h"

#include <algorithm>

#include "kernels/adamw_rule.h"
#include "offload/check.h"

namespace headrace::kernels {

namespace {

constexpr uintptr_t alignment_bytes = 16;

bool is_aligned(const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % alignment_bytes == 0;
}

}  // namespace

const char* find_fault(const UpdateOperands& operands) {
    const bool is_split = operands.hi != nullptr;
    if (is_split != (operands.lo != nullptr)) return "hi and lo come together";
    if (is_split == (operands.weight != nullptr)) return "one of {hi and lo, weight} is set";
    const bool is_narrow = operands.gradient_bf16 != nullptr;
    if (is_narrow == (operands.gradient_fp32 != nullptr)) return "one gradient is set";
    if ((operands.m != nullptr) != (operands.v != nullptr)) return "m and v come together";
    if ((operands.m_bf16 != nullptr) != (operands.v_bf16 != nullptr))
        return "m and v come together";
    const bool is_int8 = operands.m_int8 != nullptr;
    if (is_int8 != (operands.root_uint8 != nullptr)) return "m and v come together";
    if (is_int8 != (operands.steps != nullptr)) return "m and v in int8 have steps";
    const int kinds = (operands.m != nullptr) + (operands.m_bf16 != nullptr) + is_int8;
    if (kinds != 1) return "one kind of m and v is set";
    for (const void* pointer :
         {static_cast<const void*>(operands.hi), static_cast<const void*>(operands.lo),
          static_cast<const void*>(operands.weight), static_cast<const void*>(operands.m),
          static_cast<const void*>(operands.v), static_cast<const void*>(operands.gradient_bf16),
          static_cast<const void*>(operands.gradient_fp32),
          static_cast<const void*>(operands.m_bf16), static_cast<const void*>(operands.v_bf16),
          static_cast<const void*>(operands.m_int8), static_cast<const void*>(operands.root_uint8),
          static_cast<const void*>(operands.steps)}) {
        if (!is_aligned(pointer)) return "everything is aligned to 16 bytes";
    }
    return nullptr;
}

void update_on_host(const UpdateFactors& factors, const UpdateOperands& operands) {
    const char* fault = find_fault(operands);
    CHECK(fault == nullptr);
    const uint64_t element_count = operands.element_count;
    if (operands.m_int8 == nullptr) {
        for (uint64_t i = 0; i < element_count; ++i) {
            adamw_rule::update_element(factors, operands, i);
        }
        return;
    }
    CHECK_EQ(operands.first_element % adamw_rule::int8_block, 0u);
    for (uint64_t first = 0; first < element_count; first += adamw_rule::int8_block) {
        const uint64_t count = std::min(adamw_rule::int8_block, element_count - first);
        adamw_rule::update_block(factors, operands, first, count);
    }
}

}  // namespace headrace::kernels
