#include "engine/config/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "offload/check.h"

namespace headrace::engine {

namespace {

bool is_dynamic(const LossScaleRule& rule) {
    return rule.fixed_scale == 0;
}

}  // namespace

LossScale initial_loss_scale(const LossScaleRule& rule) {
    CHECK_GE(rule.fixed_scale, 0.0);
    CHECK_GE(rule.initial_scale_power, 0);
    CHECK_LE(rule.initial_scale_power, scale_power_max);
    if (!is_dynamic(rule)) return {.scale = rule.fixed_scale};
    return {.scale = std::ldexp(1.0, static_cast<int>(rule.initial_scale_power)),
            .hysteresis_left = rule.hysteresis};
}

LossScale resumed_loss_scale(const LossScale& saved, const LossScaleRule& rule) {
    if (!is_dynamic(rule)) return initial_loss_scale(rule);
    LossScale scale = saved;
    scale.scale = std::max(scale.scale, rule.min_scale);
    scale.hysteresis_left = std::clamp<int64_t>(scale.hysteresis_left, 1, rule.hysteresis);
    return scale;
}

LossScale after_good_step(const LossScale& before, const LossScaleRule& rule) {
    CHECK_GT(before.scale, 0.0);
    if (!is_dynamic(rule)) return before;
    CHECK_GT(rule.window, 0);
    LossScale after = before;
    if (rule.has_consecutive_hysteresis) after.hysteresis_left = rule.hysteresis;
    if (before.good_step_count > 0 && before.good_step_count % rule.window == 0) {
        after.hysteresis_left = rule.hysteresis;
        after.scale = std::min(2 * before.scale, std::ldexp(1.0, int{scale_power_max}));
    }
    ++after.good_step_count;
    return after;
}

LossScale after_overflow(const LossScale& before, const LossScaleRule& rule) {
    CHECK_GT(before.scale, 0.0);
    if (!is_dynamic(rule)) return before;
    LossScale after = before;
    after.good_step_count = 0;
    if (before.hysteresis_left > 1) {
        --after.hysteresis_left;
    } else {
        after.scale = std::max(before.scale / 2, rule.min_scale);
    }
    return after;
}

bool is_exhausted(const LossScale& before, const LossScaleRule& rule) {
    return is_dynamic(rule) && before.hysteresis_left <= 1 && before.scale <= rule.min_scale;
}

}  // namespace headrace::engine
