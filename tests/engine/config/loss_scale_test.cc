// Goal: the loss scale follows DeepSpeed's rule, step by step.
// Method: its rule written as it is there (counters of steps, the last overflow), over seeded
// outcomes and many settings; and the cases that people know by heart.
#include "engine/config/loss_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace headrace::engine {
namespace {

// Dynamic loss scaling with ZeRO, as DeepSpeed counts it.
struct DeepSpeedScaler {
    LossScaleRule rule;
    double scale = std::ldexp(1.0, static_cast<int>(rule.initial_scale_power));
    int64_t last_overflow = -1;
    int64_t hysteresis = rule.hysteresis;
    int64_t iteration = 0;
    bool raised = false;

    void update(bool overflow) {
        if (overflow) {
            if (rule.hysteresis == 1 || hysteresis == 1) {
                raised = raised || scale == rule.min_scale;
                scale = std::max(scale / 2, rule.min_scale);
            } else {
                hysteresis -= 1;
            }
            last_overflow = iteration;
        } else {
            if (rule.has_consecutive_hysteresis) hysteresis = rule.hysteresis;
            const int64_t stable = iteration - last_overflow - 1;
            if (stable > 0 && stable % rule.window == 0) {
                if (!rule.has_consecutive_hysteresis) hysteresis = rule.hysteresis;
                scale *= 2;
            }
        }
        ++iteration;
    }
};

TEST(LossScale, clip_2_ItIsDeepSpeedsStepByStep) {
    int rises = 0, falls = 0, ends = 0;
    for (const int64_t hysteresis : {1, 2, 3}) {
        for (const int64_t window : {1, 3, 10}) {
            for (const bool consecutive : {false, true}) {
                for (const uint32_t one_of : {3u, 12u, 40u}) {
                    const LossScaleRule rule{.initial_scale_power = 6,
                                             .window = window,
                                             .hysteresis = hysteresis,
                                             .has_consecutive_hysteresis = consecutive,
                                             .min_scale = 2};
                    DeepSpeedScaler expected{.rule = rule};
                    LossScale scale = initial_loss_scale(rule);
                    std::mt19937 random(one_of + static_cast<uint32_t>(window));
                    for (int step = 0; step < 300 && !expected.raised; ++step) {
                        const bool overflow = random() % one_of == 0;
                        const bool ends_here = overflow && is_exhausted(scale, rule);
                        const double before = scale.scale;
                        expected.update(overflow);
                        scale =
                            overflow ? after_overflow(scale, rule) : after_good_step(scale, rule);
                        // Ours stops rising where 1 / scale would leave fp32.
                        if (expected.scale > 0x1p100) break;
                        ASSERT_EQ(scale.scale, expected.scale) << step;
                        ASSERT_EQ(ends_here, expected.raised) << step;
                        rises += scale.scale > before ? 1 : 0;
                        falls += scale.scale < before ? 1 : 0;
                        ends += ends_here ? 1 : 0;
                    }
                }
            }
        }
    }
    EXPECT_GT(rises, 100);
    EXPECT_GT(falls, 100);
    EXPECT_GT(ends, 3);
}

// The defaults: the first overflow keeps 65536, the second halves it, and it takes 1000 good steps
// after the first good one to double.
TEST(LossScale, TheDefaultsAreWhatPeopleKnow) {
    const LossScaleRule rule;
    LossScale scale = initial_loss_scale(rule);
    EXPECT_EQ(scale.scale, 65536);
    scale = after_overflow(scale, rule);
    EXPECT_EQ(scale.scale, 65536);
    scale = after_overflow(scale, rule);
    EXPECT_EQ(scale.scale, 32768);
    for (int step = 0; step < 1000; ++step) {
        scale = after_good_step(scale, rule);
        EXPECT_EQ(scale.scale, 32768);
    }
    scale = after_good_step(scale, rule);
    EXPECT_EQ(scale.scale, 65536);
    EXPECT_EQ(scale.hysteresis_left, 2);
}

TEST(LossScale, AFixedScaleStays) {
    const LossScaleRule rule{.fixed_scale = 128};
    const LossScale scale = initial_loss_scale(rule);
    EXPECT_EQ(scale.scale, 128);
    EXPECT_EQ(after_overflow(scale, rule), scale);
    EXPECT_EQ(after_good_step(scale, rule), scale);
    EXPECT_FALSE(is_exhausted(scale, rule));
    EXPECT_EQ(initial_loss_scale(unscaled).scale, 1);
}

TEST(LossScale, ItCannotRiseOutOfFp32) {
    const LossScaleRule rule{.initial_scale_power = scale_power_max, .window = 1};
    LossScale scale = initial_loss_scale(rule);
    for (int step = 0; step < 10; ++step) scale = after_good_step(scale, rule);
    EXPECT_EQ(scale.scale, 0x1p100);
}

TEST(LossScale, AResumeObeysTheRuleItIsGiven) {
    const LossScale saved{.scale = 4, .good_step_count = 17, .hysteresis_left = 2};
    EXPECT_EQ(resumed_loss_scale(saved, {}), saved);
    EXPECT_EQ(resumed_loss_scale(saved, {.fixed_scale = 8}).scale, 8);
    EXPECT_EQ(resumed_loss_scale(saved, {.min_scale = 16}).scale, 16);
    EXPECT_EQ(resumed_loss_scale(saved, {.hysteresis = 1}).hysteresis_left, 1);
}

}  // namespace
}  // namespace headrace::engine
