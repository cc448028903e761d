// Goal: the rate of every update is what people know from transformers, and nothing but the index
// decides it.
// Method: values printed by transformers 5.24 (get_scheduler over torch.optim.AdamW, lr 1e-3), and
// the rates of a run that stops and resumes beside those of one that does not.
#include "engine/config/lr_schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace headrace::engine {
namespace {

std::vector<double> rates(const LrPlan& plan) {
    std::vector<double> all;
    for (int64_t i = 0; i < plan.update_count; ++i) all.push_back(lr_at(plan, i));
    return all;
}

struct Golden {
    LrSchedule schedule;
    int64_t warmup_count;
    std::vector<double> rates;
};

TEST(LrScheduleTest, the_rates_are_those_of_transformers) {
    const std::vector<Golden> goldens = {
        {LrSchedule::linear,
         2,
         {0.0, 0.0005, 0.001, 0.0008333333333333334, 0.0006666666666666666, 0.0005,
          0.0003333333333333333, 0.00016666666666666666}},
        {LrSchedule::linear, 0, {0.001, 0.0008, 0.0006, 0.0004, 0.0002}},
        {LrSchedule::linear, 1, {0.0}},
        {LrSchedule::cosine,
         3,
         {0.0, 0.0003333333333333333, 0.0006666666666666666, 0.001, 0.0009504844339512095,
          0.0008117449009293668, 0.0006112604669781572, 0.00038873953302184284,
          0.00018825509907063325, 4.9515566048790485e-05}},
        {LrSchedule::cosine, 0, {0.001, 0.0008535533905932737, 0.0005, 0.00014644660940672628}},
        {LrSchedule::constant_with_warmup, 4, {0.0, 0.00025, 0.0005, 0.00075, 0.001, 0.001}},
    };
    for (const Golden& golden : goldens) {
        const std::vector<double> found =
            rates({.schedule = golden.schedule,
                   .learning_rate = 1e-3,
                   .warmup_count = golden.warmup_count,
                   .update_count = static_cast<int64_t>(golden.rates.size())});
        for (size_t i = 0; i < golden.rates.size(); ++i) {
            EXPECT_NEAR(found[i], golden.rates[i], 1e-18) << name_of(golden.schedule) << ' ' << i;
        }
    }
}

// The case's own run: warm-up 20, cosine to 100, stopped at 10, 20 and 50.
TEST(LrScheduleTest, ckpt_9_a_resume_goes_on_with_the_same_rates) {
    const LrPlan plan{.schedule = LrSchedule::cosine,
                      .learning_rate = 1e-3,
                      .warmup_count = 20,
                      .update_count = 100};
    const std::vector<double> uninterrupted = rates(plan);
    EXPECT_NEAR(uninterrupted[10], 0.0005, 1e-18);
    EXPECT_NEAR(uninterrupted[21], 0.0009996145181203615, 1e-18);
    EXPECT_NEAR(uninterrupted[50], 0.000691341716182545, 1e-18);
    EXPECT_NEAR(uninterrupted[99], 3.854818796385495e-07, 1e-18);
    for (const int64_t stop : {10, 20, 50}) {
        const LrPlan resumed = plan;  // nothing but the plan and the update count is kept
        for (int64_t i = stop; i < 100; ++i) EXPECT_EQ(lr_at(resumed, i), uninterrupted[i]) << i;
    }
}

// 10 attempts of which 2 are skipped: the attempt after a skip has the rate of the skipped one.
TEST(LrScheduleTest, clip_4_a_skipped_step_does_not_move_the_rate) {
    const LrPlan plan{.learning_rate = 1e-3, .warmup_count = 0, .update_count = 8};
    std::vector<double> applied;
    double skipped_rate = -1;
    for (int64_t attempt = 0; attempt < 10; ++attempt) {
        const double rate = lr_at(plan, static_cast<int64_t>(applied.size()));
        if (attempt == 3 || attempt == 6) {
            skipped_rate = rate;
            continue;
        }
        if (attempt == 4 || attempt == 7) {
            EXPECT_EQ(rate, skipped_rate);
        }
        applied.push_back(rate);
    }
    EXPECT_EQ(applied, rates(plan));
}

TEST(LrScheduleTest, after_the_last_update_the_rate_stays) {
    LrPlan plan{.learning_rate = 1e-3, .warmup_count = 2, .update_count = 8};
    EXPECT_EQ(lr_at(plan, 8), 0);
    EXPECT_EQ(lr_at(plan, 1000), 0);
    plan.schedule = LrSchedule::constant;
    EXPECT_EQ(lr_at(plan, 1000), 1e-3);
}

TEST(LrScheduleTest, warm_up_is_a_rounded_up_share_or_a_number_of_updates) {
    RunConfig config;
    config.warmup_ratio = 0.03;
    EXPECT_EQ(lr_plan_of(config, 30).warmup_count, 1);
    EXPECT_EQ(lr_plan_of(config, 100).warmup_count, 3);
    EXPECT_EQ(lr_plan_of(config, 101).warmup_count, 4);
    config.warmup_steps = 7;
    EXPECT_EQ(lr_plan_of(config, 101).warmup_count, 7);
    config.warmup_steps = 0;
    EXPECT_EQ(lr_at(lr_plan_of(config, 101), 0), config.learning_rate);
    config.warmup_steps = 7;
    config.lr_scheduler_type = LrSchedule::constant;
    EXPECT_EQ(lr_at(lr_plan_of(config, 101), 0), config.learning_rate);
}

}  // namespace
}  // namespace headrace::engine
