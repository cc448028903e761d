#include "cpu_adam/adamw.h"

#include <cmath>
#include <limits>

#include "offload/check.h"

namespace headrace::cpu_adam {

namespace {

// base^exponent by squaring; about log2(exponent) roundings of double.
double power(double base, uint64_t exponent) {
    double result = 1;
    for (double square = base; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0) result *= square;
        square *= square;
    }
    return result;
}

}  // namespace

StepFactors factors_of(const AdamStep& step) {
    CHECK_GE(step.adam_step, 1u);
    CHECK(step.beta1 >= 0 && step.beta1 < 1);
    CHECK(step.beta2 >= 0 && step.beta2 < 1);
    CHECK(std::isfinite(step.learning_rate) && step.learning_rate >= 0);
    CHECK(std::isfinite(step.weight_decay) && step.weight_decay >= 0);
    CHECK(std::isfinite(step.gradient_scale));
    const double m_correction = 1 - power(step.beta1, step.adam_step);
    const double v_correction = 1 - power(step.beta2, step.adam_step);
    CHECK_GT(m_correction, 0.0);
    CHECK_GT(v_correction, 0.0);
    const bool decoupled = step.decay == Decay::decoupled;
    const StepFactors factors{
        .gradient_scale = step.gradient_scale,
        .l2 = decoupled ? 0.0f : static_cast<float>(step.weight_decay),
        .m_rate = static_cast<float>(1 - step.beta1),
        .v_rate = static_cast<float>(1 - step.beta2),
        .root_scale = static_cast<float>(1 / std::sqrt(v_correction)),
        .epsilon = static_cast<float>(step.epsilon),
        .step_size = static_cast<float>(step.learning_rate / m_correction),
        .decay = decoupled ? static_cast<float>(step.learning_rate * step.weight_decay) : 0.0f,
        .adam_step = step.adam_step,
    };
    CHECK_GE(factors.epsilon, std::numeric_limits<float>::min());
    CHECK(std::isfinite(factors.step_size));
    return factors;
}

}  // namespace headrace::cpu_adam
