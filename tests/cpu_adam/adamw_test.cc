// Goal: a step's constants depend on the step alone; small updates reach the master; clipping and
// decay act where they should.
// Method: the constants against double arithmetic; runs of the scalar row (all rows have its bits:
// rows_test.cc) against AdamW and Adam in double.
#include "cpu_adam/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

namespace {

// A group of split weights with its state.
struct Group {
    explicit Group(const std::vector<float>& weights)
        : hi(to_bf16(weights)), lo(weights.size()), m(weights.size()), v(weights.size()) {}

    // The elements from `first` on, `element_count` of them.
    void update(const AdamStep& step, const std::vector<float>& gradients, uint64_t first,
                uint64_t element_count) {
        update_scalar(factors_of(step), {.element_count = element_count,
                                         .hi = hi.data() + first,
                                         .lo = lo.data() + first,
                                         .m = m.data() + first,
                                         .v = v.data() + first,
                                         .gradient_fp32 = gradients.data() + first});
    }
    void update(const AdamStep& step, const std::vector<float>& gradients) {
        update(step, gradients, 0, hi.size());
    }
    double master(uint64_t i) const { return static_cast<double>(master_of(hi[i], lo[i])); }
    bool operator==(const Group&) const = default;

    std::vector<uint16_t> hi, lo;
    std::vector<float> m, v;
};

std::vector<ReferenceElement> reference_of(const Group& group) {
    std::vector<ReferenceElement> elements(group.hi.size());
    for (size_t i = 0; i < elements.size(); ++i) elements[i].w = group.master(i);
    return elements;
}

double largest_difference(const Group& group, const std::vector<ReferenceElement>& reference) {
    double largest = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
        largest = std::max(largest, std::fabs(group.master(i) - reference[i].w));
    }
    return largest;
}

// Both through the same steps; gradients anew for each.
double difference_after(const std::vector<AdamStep>& steps, uint64_t element_count) {
    Group group(plain_values(element_count, 0.1f, 1));
    std::vector<ReferenceElement> reference = reference_of(group);
    for (size_t s = 0; s < steps.size(); ++s) {
        const auto seed = static_cast<uint32_t>(100 + s);
        const std::vector<float> gradients = plain_values(element_count, 0.02f, seed);
        group.update(steps[s], gradients);
        for (size_t i = 0; i < element_count; ++i) {
            update_reference(steps[s], static_cast<double>(gradients[i]), &reference[i]);
        }
    }
    return largest_difference(group, reference);
}

}  // namespace

TEST(AdamW, factors_are_those_of_the_definition) {
    const AdamStep step{.learning_rate = 3e-4,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .epsilon = 1e-6,
                        .weight_decay = 0.1,
                        .adam_step = 7,
                        .gradient_scale = 0.25f};
    const StepFactors factors = factors_of(step);
    EXPECT_EQ(factors.gradient_scale, 0.25f);
    EXPECT_EQ(factors.l2, 0.0f);
    EXPECT_EQ(factors.m_rate, 0.1f);
    EXPECT_EQ(factors.v_rate, 0.05f);
    EXPECT_EQ(factors.epsilon, 1e-6f);
    EXPECT_EQ(factors.decay, 3e-5f);
    EXPECT_FLOAT_EQ(factors.step_size, static_cast<float>(3e-4 / (1 - std::pow(0.9, 7))));
    EXPECT_FLOAT_EQ(factors.root_scale, static_cast<float>(1 / std::sqrt(1 - std::pow(0.95, 7))));
}

TEST(AdamW, math_2_factors_do_not_count_calls) {
    const AdamStep step{.learning_rate = 1e-3, .adam_step = 5};
    const StepFactors once = factors_of(step);
    for (uint64_t other = 1; other < 9; ++other) {
        static_cast<void>(factors_of({.learning_rate = 1, .adam_step = other}));
    }
    const StepFactors again = factors_of(step);
    EXPECT_EQ(std::memcmp(&once, &again, sizeof once), 0);
}

TEST(AdamW, math_2_sub_groups_have_the_bits_of_one) {
    const uint64_t element_count = 7 * 131 + 6;
    const std::vector<float> weights = plain_values(element_count, 0.1f, 3);
    std::vector<Group> groups(3, Group(weights));
    const uint64_t cuts[] = {1, 2, 7};
    for (uint64_t t = 1; t <= 50; ++t) {
        const AdamStep step{.learning_rate = 1e-3, .weight_decay = 0.01, .adam_step = t};
        const auto gradients = plain_values(element_count, 0.02f, static_cast<uint32_t>(t));
        for (size_t g = 0; g < groups.size(); ++g) {
            const uint64_t each = element_count / cuts[g];
            for (uint64_t cut = 0; cut < cuts[g]; ++cut) {
                const uint64_t first = cut * each;
                const uint64_t count = cut + 1 == cuts[g] ? element_count - first : each;
                groups[g].update(step, gradients, first, count);
            }
        }
    }
    EXPECT_EQ(groups[0], groups[1]);
    EXPECT_EQ(groups[0], groups[2]);
}

TEST(AdamW, math_2_steps_may_jump_and_betas_change) {
    std::vector<AdamStep> steps;
    for (const uint64_t t : {1, 2, 5, 6}) steps.push_back({.learning_rate = 1e-3, .adam_step = t});
    steps[2].beta1 = 0.8;
    steps[3].beta2 = 0.99;
    EXPECT_LT(difference_after(steps, 1000), 1e-7);
}

TEST(AdamW, math_7_small_updates_reach_the_master_and_then_the_weight) {
    Group group(std::vector<float>(64, 1.0f));
    std::vector<ReferenceElement> reference = reference_of(group);
    const std::vector<float> gradients(64, 0.3f);
    for (uint64_t t = 1; t <= 100; ++t) {
        const AdamStep step{.learning_rate = 1e-4, .adam_step = t};
        group.update(step, gradients);
        for (ReferenceElement& element : reference) {
            update_reference(step, static_cast<double>(gradients[0]), &element);
        }
        // One update is 1/39 of the bf16 step below 1.
        if (t == 1) {
            EXPECT_EQ(group.hi[0], offload::float_to_bf16(1.0f));
        }
    }
    const double moved = 1 - group.master(0);
    EXPECT_NEAR(moved, 1 - reference[0].w, 0.02 * moved);
    EXPECT_NE(group.hi[0], offload::float_to_bf16(1.0f));
}

TEST(AdamW, math_7_small_decay_shows_after_a_thousand_steps) {
    Group group(std::vector<float>(8, 1.0f));
    const std::vector<float> gradients(8, 0.0f);
    for (uint64_t t = 1; t <= 1000; ++t) {
        group.update({.learning_rate = 1e-4, .weight_decay = 0.1, .adam_step = t}, gradients);
    }
    EXPECT_NEAR(group.master(0), std::pow(1 - 1e-5, 1000), 1e-5);
    EXPECT_LT(offload::bf16_to_float(group.hi[0]), 1.0f);
}

TEST(AdamW, clip_1_the_factor_scales_what_updates) {
    const uint64_t element_count = 500;
    const std::vector<float> weights = plain_values(element_count, 0.1f, 4);
    std::vector<float> gradients = plain_values(element_count, 1.0f, 5);
    double squares = 0;
    for (const float g : gradients) squares += static_cast<double>(g) * static_cast<double>(g);
    const auto to_norm_100 = static_cast<float>(100 / std::sqrt(squares));
    for (float& gradient : gradients) gradient *= to_norm_100;
    Group clipped(weights), unclipped(weights), divided(weights);
    std::vector<float> hundredth = gradients;
    for (float& gradient : hundredth) gradient *= 0.01f;
    // A large epsilon, so that the scale of the gradient shows in the weights too.
    const AdamStep step{.learning_rate = 1e-2, .epsilon = 1e-2};
    AdamStep scaled = step;
    scaled.gradient_scale = 0.01f;
    clipped.update(scaled, gradients);
    unclipped.update(step, gradients);
    divided.update(step, hundredth);
    EXPECT_EQ(clipped, divided);
    EXPECT_NE(clipped.hi, unclipped.hi);
    EXPECT_NE(clipped.m, unclipped.m);
}

TEST(AdamW, cfg_5_adam_and_adamw_are_themselves) {
    std::vector<AdamStep> adamw, adam;
    for (uint64_t t = 1; t <= 10; ++t) {
        adamw.push_back({.learning_rate = 1e-3, .weight_decay = 0.1, .adam_step = t});
        adam.push_back(adamw.back());
        adam.back().decay = Decay::l2;
    }
    EXPECT_LT(difference_after(adamw, 1000), 1e-6);
    EXPECT_LT(difference_after(adam, 1000), 1e-6);

    Group one(plain_values(1000, 0.1f, 1)), other = one;
    const std::vector<float> gradients = plain_values(1000, 0.02f, 2);
    one.update(adamw[0], gradients);
    other.update(adam[0], gradients);
    EXPECT_NE(one, other);
}

TEST(AdamWDeathTest, refuses_what_has_no_meaning) {
    EXPECT_DEATH(static_cast<void>(factors_of({.adam_step = 0})), "adam_step");
    EXPECT_DEATH(static_cast<void>(factors_of({.beta1 = 1})), "beta1");
    EXPECT_DEATH(static_cast<void>(factors_of({.beta2 = -0.1})), "beta2");
    EXPECT_DEATH(static_cast<void>(factors_of({.epsilon = 0})), "epsilon");
    EXPECT_DEATH(static_cast<void>(factors_of({.gradient_scale = NAN})), "gradient_scale");
}

}  // namespace headrace::cpu_adam
