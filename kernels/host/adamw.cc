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
    if (operands.m == nullptr || operands.v == nullptr) return "m and v are set";
    for (const void* pointer :
         {static_cast<const void*>(operands.hi), static_cast<const void*>(operands.lo),
          static_cast<const void*>(operands.weight), static_cast<const void*>(operands.m),
          static_cast<const void*>(operands.v), static_cast<const void*>(operands.gradient_bf16),
          static_cast<const void*>(operands.gradient_fp32)}) {
        if (!is_aligned(pointer)) return "everything is aligned to 16 bytes";
    }
    return nullptr;
}

void update_on_host(const UpdateFactors& factors, const UpdateOperands& operands) {
    const char* fault = find_fault(operands);
    CHECK(fault == nullptr);
    for (uint64_t i = 0; i < operands.element_count; ++i) {
        const float gradient = operands.gradient_fp32 != nullptr
                                   ? operands.gradient_fp32[i]
                                   : adamw_rule::bf16_value(operands.gradient_bf16[i]);
        float& m = operands.m[i];
        float& v = operands.v[i];
        if (operands.weight != nullptr) {
            operands.weight[i] = adamw_rule::update(factors, operands.weight[i], gradient, m, v);
        } else {
            const float w = adamw_rule::join(operands.hi[i], operands.lo[i]);
            adamw_rule::split(adamw_rule::update(factors, w, gradient, m, v), operands.hi[i],
                              operands.lo[i]);
        }
    }
}

}  // namespace headrace::kernels
