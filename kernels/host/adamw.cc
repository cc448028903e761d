#include "kernels/adamw.h"

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
    if ((operands.m != nullptr) == (operands.m_bf16 != nullptr))
        return "one kind of m and v is set";
    for (const void* pointer :
         {static_cast<const void*>(operands.hi), static_cast<const void*>(operands.lo),
          static_cast<const void*>(operands.weight), static_cast<const void*>(operands.m),
          static_cast<const void*>(operands.v), static_cast<const void*>(operands.gradient_bf16),
          static_cast<const void*>(operands.gradient_fp32),
          static_cast<const void*>(operands.m_bf16), static_cast<const void*>(operands.v_bf16)}) {
        if (!is_aligned(pointer)) return "everything is aligned to 16 bytes";
    }
    return nullptr;
}

void update_on_host(const UpdateFactors& factors, const UpdateOperands& operands) {
    const char* fault = find_fault(operands);
    CHECK(fault == nullptr);
    for (uint64_t i = 0; i < operands.element_count; ++i)
        adamw_rule::update_element(factors, operands, i);
}

}  // namespace headrace::kernels
