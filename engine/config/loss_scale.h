// The loss scale of an fp16 run. fp16 has nothing between 0 and 2^-24, and most gradients of a
// language model lie there: the loss is multiplied by a scale before backward, and the update
// divides by it. Gradients that are not finite afterwards say that the scale is too high: their
// step is skipped and the scale falls; long enough without them, it rises.
//
// Names, values and meaning are DeepSpeed's (its fp16 section with ZeRO):
//   not finite: with hysteresis left above 1 that falls by 1 and the scale stays; else the scale is
//               halved, at least to min_scale
//   finite:     after each `window` steps without one that was not, the scale doubles and the
//               hysteresis is full again (with consecutive_hysteresis: at every such step)
// So with the default hysteresis 2 the first step that is not finite is skipped and keeps the
// scale. Not finite when the scale cannot fall any more is the end: the numbers are not the scale's
// fault.
//
// Pure functions over plain values: what a step does to the scale is part of the run's progress,
// stored in its commits.
#pragma once

#include <cstdint>

namespace headrace::engine {

// The settings of the run file.
struct LossScaleRule {
    double fixed_scale = 0;            // loss_scale; 0: dynamic
    int64_t initial_scale_power = 16;  // the scale begins with 2 to this
    int64_t window = 1000;             // steps, loss_scale_window
    int64_t hysteresis = 2;
    bool has_consecutive_hysteresis = false;
    double min_scale = 1;  // min_loss_scale
    bool operator==(const LossScaleRule&) const = default;
};

// What a run whose gradients need no scale goes by.
inline constexpr LossScaleRule unscaled{.fixed_scale = 1};

// It cannot rise for ever where all gradients are 0: 1 / scale has to stay an fp32.
inline constexpr int64_t scale_power_max = 100;

struct LossScale {
    double scale = 1;
    int64_t good_step_count = 0;  // since the last step that was not finite, or since the start
    int64_t hysteresis_left = 1;
    bool operator==(const LossScale&) const = default;
};

LossScale initial_loss_scale(const LossScaleRule& rule);

// What a run is resumed with under a rule that may be another one: `saved`, where it is possible.
LossScale resumed_loss_scale(const LossScale& saved, const LossScaleRule& rule);

// After a step whose gradients were finite, or were not.
LossScale after_good_step(const LossScale& before, const LossScaleRule& rule);
LossScale after_overflow(const LossScale& before, const LossScaleRule& rule);

// A step that is not finite now could not lower the scale. Never so for a fixed scale.
bool is_exhausted(const LossScale& before, const LossScaleRule& rule);

}  // namespace headrace::engine
