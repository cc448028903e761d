#include "engine/config/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "offload/check.h"

namespace headrace::engine {

LrPlan lr_plan_of(const RunConfig& config, int64_t update_count) {
    CHECK_GE(update_count, 0);
    CHECK(config.warmup_ratio >= 0 && config.warmup_ratio <= 1);
    const bool warms_up = config.lr_scheduler_type != LrSchedule::constant;
    const double warmup = std::ceil(static_cast<double>(update_count) * config.warmup_ratio);
    return {
        .schedule = config.lr_scheduler_type,
        .learning_rate = config.learning_rate,
        .warmup_count = warms_up ? config.warmup_steps.value_or(static_cast<int64_t>(warmup)) : 0,
        .update_count = update_count};
}

double lr_at(const LrPlan& plan, int64_t update_index) {
    CHECK_GE(update_index, 0);
    CHECK_GE(plan.warmup_count, 0);
    CHECK_GE(plan.update_count, 0);
    const auto index = static_cast<double>(std::min(update_index, plan.update_count));
    const auto warmup = static_cast<double>(plan.warmup_count);
    const auto count = static_cast<double>(plan.update_count);
    if (update_index < plan.warmup_count) return plan.learning_rate * (index / warmup);
    const double rest = std::max(1.0, count - warmup);
    switch (plan.schedule) {
        case LrSchedule::linear: return plan.learning_rate * std::max(0.0, (count - index) / rest);
        case LrSchedule::cosine: {
            const double progress = (index - warmup) / rest;
            return plan.learning_rate *
                   std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
        }
        case LrSchedule::constant:
        case LrSchedule::constant_with_warmup: return plan.learning_rate;
    }
    CHECK(false);
}

}  // namespace headrace::engine
