// Goal: over 100 steps the update is as near to AdamW in double as torch's own fused AdamW is, in
// the largest and in the mean error; and Adam and AdamW are torch's (CFG-5).
// Method: torch's fused kernel, called without its Python, on the same weights and gradients.
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

// torch has macros of these names too; ours follow with offload/check.h.
#undef CHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_LT
#undef CHECK_LE
#undef CHECK_GT
#undef CHECK_GE
#undef DCHECK

#include <cmath>
#include <vector>

#include "cpu_adam/variants.h"
#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t element_count = 4096;

struct Moments {
    std::vector<float> w, m, v;
};

struct ErrorSummary {
    double largest = 0;
    double mean = 0;
};

at::Tensor view(std::vector<float>* values) {
    return at::from_blob(values->data(), {static_cast<int64_t>(values->size())});
}

void update_torch(const AdamStep& step, std::vector<float>* gradients, Moments* moments) {
    const auto t = at::scalar_tensor(static_cast<float>(step.adam_step), at::kFloat);
    const auto update =
        step.decay == Decay::decoupled
            ? static_cast<void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                                   at::TensorList, at::TensorList, double, double, double, double,
                                   double, bool, bool, const std::optional<at::Tensor>&,
                                   const std::optional<at::Tensor>&)>(&at::_fused_adamw_)
            : static_cast<void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                                   at::TensorList, at::TensorList, double, double, double, double,
                                   double, bool, bool, const std::optional<at::Tensor>&,
                                   const std::optional<at::Tensor>&)>(&at::_fused_adam_);
    update({view(&moments->w)}, {view(gradients)}, {view(&moments->m)}, {view(&moments->v)}, {},
           {t}, step.learning_rate, step.beta1, step.beta2, step.weight_decay, step.epsilon, false,
           false, std::nullopt, std::nullopt);
}

struct Comparison {
    ErrorSummary ours, torch;
    double between = 0;  // the largest difference of the two
};

ErrorSummary error_of(const std::vector<float>& weights,
                      const std::vector<ReferenceElement>& reference) {
    ErrorSummary error;
    for (size_t i = 0; i < reference.size(); ++i) {
        const double distance = std::fabs(static_cast<double>(weights[i]) - reference[i].w);
        error.largest = std::max(error.largest, distance);
        error.mean += distance / static_cast<double>(reference.size());
    }
    return error;
}

Comparison compare(AdamStep step, uint64_t step_count, uint32_t seed) {
    const std::vector<uint16_t> start = to_bf16(plain_values(element_count, 0.1f, seed));
    std::vector<uint16_t> hi = start, lo(element_count);
    Moments ours{{}, std::vector<float>(element_count), std::vector<float>(element_count)};
    Moments torch = ours;
    std::vector<ReferenceElement> reference(element_count);
    for (size_t i = 0; i < element_count; ++i) {
        torch.w.push_back(offload::bf16_to_float(start[i]));
        reference[i].w = static_cast<double>(torch.w[i]);
    }
    for (step.adam_step = 1; step.adam_step <= step_count; ++step.adam_step) {
        const auto gradient_seed = static_cast<uint32_t>(1000 * seed + step.adam_step);
        std::vector<float> gradients = plain_values(element_count, 0.01f, gradient_seed);
        best().update(factors_of(step), {.element_count = element_count,
                                         .hi = hi.data(),
                                         .lo = lo.data(),
                                         .m = ours.m.data(),
                                         .v = ours.v.data(),
                                         .gradient_fp32 = gradients.data()});
        update_torch(step, &gradients, &torch);
        for (size_t i = 0; i < element_count; ++i) {
            update_reference(step, static_cast<double>(gradients[i]), &reference[i]);
        }
    }
    Comparison result;
    for (size_t i = 0; i < element_count; ++i) {
        ours.w.push_back(master_of(hi[i], lo[i]));
        const double difference = std::fabs(static_cast<double>(ours.w[i] - torch.w[i]));
        result.between = std::max(result.between, difference);
    }
    result.ours = error_of(ours.w, reference);
    result.torch = error_of(torch.w, reference);
    return result;
}

}  // namespace

TEST(TorchAccuracy, a_hundred_steps_are_as_near_to_double_as_torch) {
    for (const double learning_rate : {1e-5, 1e-4, 1e-3}) {
        for (const double weight_decay : {0.0, 0.1}) {
            const Comparison result =
                compare({.learning_rate = learning_rate, .weight_decay = weight_decay}, 100, 1);
            EXPECT_LE(result.ours.largest, 1.05 * result.torch.largest)
                << learning_rate << " " << weight_decay;
            EXPECT_LE(result.ours.mean, 1.05 * result.torch.mean)
                << learning_rate << " " << weight_decay;
            EXPECT_GT(result.torch.largest, 0.0);
        }
    }
}

TEST(TorchAccuracy, cfg_5_adam_and_adamw_are_those_of_torch) {
    const AdamStep adamw{.learning_rate = 1e-3, .weight_decay = 0.1};
    AdamStep adam = adamw;
    adam.decay = Decay::l2;
    EXPECT_LT(compare(adamw, 10, 2).between, 1e-6);
    EXPECT_LT(compare(adam, 10, 2).between, 1e-6);
}

}  // namespace headrace::cpu_adam
