// AdamW and Adam in double, from their definition (torch.optim), for the tests of cpu_adam; and
// seeded test values.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cpu_adam/adamw.h"
#include "offload/dtype.h"

namespace headrace::cpu_adam {

struct ReferenceElement {
    double w = 0;
    double m = 0;
    double v = 0;
};

inline void update_reference(const AdamStep& step, double gradient, ReferenceElement* element) {
    double g = gradient * static_cast<double>(step.gradient_scale);
    const auto t = static_cast<double>(step.adam_step);
    if (step.decay == Decay::l2) {
        g += step.weight_decay * element->w;
    } else {
        element->w *= 1 - step.learning_rate * step.weight_decay;
    }
    element->m = step.beta1 * element->m + (1 - step.beta1) * g;
    element->v = step.beta2 * element->v + (1 - step.beta2) * g * g;
    const double m_hat = element->m / (1 - std::pow(step.beta1, t));
    const double v_hat = element->v / (1 - std::pow(step.beta2, t));
    element->w -= step.learning_rate * m_hat / (std::sqrt(v_hat) + step.epsilon);
}

// The distance from `value` to the next larger magnitude.
inline double ulp_of(double value) {
    const float magnitude = std::fabs(static_cast<float>(value));
    return std::nextafter(magnitude, INFINITY) - static_cast<double>(magnitude);
}

// Values of both signs over about 40 powers of e.
inline std::vector<float> wide_values(uint64_t element_count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> exponent(-25, 15);
    std::vector<float> values(element_count);
    for (float& value : values) value = normal(random) * std::exp(exponent(random));
    return values;
}

// Values as weights and gradients have them.
inline std::vector<float> plain_values(uint64_t element_count, float deviation, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(element_count);
    for (float& value : values) value = normal(random);
    return values;
}

inline std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
    std::vector<uint16_t> bf16(values.size());
    for (size_t i = 0; i < values.size(); ++i) bf16[i] = offload::float_to_bf16(values[i]);
    return bf16;
}

// The fp32 master of a split weight, from its definition.
inline float master_of(uint16_t hi, uint16_t lo) {
    const uint32_t upper = lo >= 0x8000 ? hi - 1u : hi;
    return std::bit_cast<float>(upper << 16 | lo);
}

}  // namespace headrace::cpu_adam
