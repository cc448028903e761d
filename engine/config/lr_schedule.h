// The learning rate as a pure function of the update index, so that a resume, a skipped step or a
// second thread cannot see another one. Update 0 is the first *applied* update; a step that is
// skipped (not finite) has no index, so the next attempt uses the same rate.
//
// The values are those of transformers' get_scheduler: warm-up rises from 0 (update 0 has rate 0),
// then `linear` falls to 0 at update_count, `cosine` follows half a cosine to 0,
// `constant_with_warmup` stays; `constant` is the peak from the first.
#pragma once

#include <cstdint>

#include "engine/config/run_config.h"

namespace headrace::engine {

struct LrPlan {
    LrSchedule schedule = LrSchedule::linear;
    double learning_rate = 0;  // the peak
    int64_t warmup_count = 0;  // updates
    int64_t update_count = 0;  // of the whole run
};

// Warm-up: none of `constant`; warmup_steps where given, else warmup_ratio of update_count, rounded
// up.
LrPlan lr_plan_of(const RunConfig& config, int64_t update_count);

// 0 <= update_index; past update_count the rate is that of update_count.
double lr_at(const LrPlan& plan, int64_t update_index);

}  // namespace headrace::engine
