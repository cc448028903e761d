// The rule, one element at a time, in the words of cpu_adam/adamw.h. std::fma is correctly rounded
// with or without the instruction, so this row runs everywhere and is the oracle of the others.
#include <bit>
#include <cmath>
#include <limits>

#include "cpu_adam/adamw.h"

namespace headrace::cpu_adam {

namespace {

float join(uint16_t hi, uint16_t lo) {
    const uint32_t rounded_up = static_cast<uint32_t>(lo & 0x8000u) << 1;
    return std::bit_cast<float>((static_cast<uint32_t>(hi) << 16) + lo - rounded_up);
}

void split(float value, uint16_t* hi, uint16_t* lo) {
    const uint32_t bits = std::isnan(value) ? 0x7FC00000u : std::bit_cast<uint32_t>(value);
    *hi = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    *lo = static_cast<uint16_t>(bits & 0xFFFFu);
}

float gradient_at(const Operands& operands, uint64_t element) {
    if (operands.gradient_fp32 != nullptr) return operands.gradient_fp32[element];
    return std::bit_cast<float>(static_cast<uint32_t>(operands.gradient_bf16[element]) << 16);
}

// Returns the new weight; m and v in place.
float update_one(const StepFactors& factors, float w, float gradient, float* m, float* v) {
    const float g = std::fma(factors.l2, w, gradient * factors.gradient_scale);
    *m = std::fma(factors.m_rate, g - *m, *m);
    const float square = g * g;
    const float largest = std::numeric_limits<float>::max();
    const float q = square < largest ? square : largest;
    *v = std::fma(factors.v_rate, q - *v, *v);
    const float d = std::fma(std::sqrt(*v), factors.root_scale, factors.epsilon);
    const float u = factors.step_size * (*m / d);
    return w - std::fma(factors.decay, w, u);
}

}  // namespace

void update_scalar(const StepFactors& factors, const Operands& operands) {
    for (uint64_t i = 0; i < operands.element_count; ++i) {
        const float gradient = gradient_at(operands, i);
        float* m = operands.m + i;
        float* v = operands.v + i;
        if (operands.weight != nullptr) {
            operands.weight[i] = update_one(factors, operands.weight[i], gradient, m, v);
        } else {
            const float w = join(operands.hi[i], operands.lo[i]);
            split(update_one(factors, w, gradient, m, v), operands.hi + i, operands.lo + i);
        }
    }
}

}  // namespace headrace::cpu_adam
