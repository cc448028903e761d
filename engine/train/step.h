// What goes into a training step and what comes out, as the engine sees it: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cpu_adam/adamw.h"
#include "engine/data/batch_plan.h"
#include "engine/resume/progress.h"
#include "engine/torch/llama.h"
#include "offload/exact_sum.h"
#include "offload/run.h"
#include "offload/store.h"

namespace headrace::engine {

enum class SkipReason : uint8_t { none, not_finite, nothing_to_train };

// What the verdict says of a step, with the numbers it was made from.
struct StepOutcome {
    int64_t step = 0;  // from 0, counted from the start of the run
    offload::Verdict verdict = offload::Verdict::skip;
    SkipReason skip_reason = SkipReason::none;
    std::string skip_tensor;          // not_finite: the first tensor, in model order, that is not
    double loss = 0;                  // loss_sum / trained tokens; NaN where nothing is trained
    double loss_scale = 1;            // that this step's gradients were multiplied by
    bool is_scale_exhausted = false;  // not finite, and the scale cannot fall any more
    double grad_norm = 0;             // before clipping, of the gradients without the scale
    float clip_factor = 1;            // what those gradients are multiplied by in the update
    double learning_rate = 0;         // of the update that this step makes, or would have made
    Progress progress;                // with this step
    int64_t time_ns = 0;              // since the step before was complete
    StepBatch counts;                 // token counts; its micro-batches are empty
};

// The rule of the update number `update_index` (from 0): a pure function of the run's settings.
using AdamStepOf = std::function<cpu_adam::AdamStep(int64_t update_index)>;

Progress advance(const Progress& before, const StepOutcome& outcome, const LossScaleRule& rule);

// d loss / d (-log p) of one token: scale / trained tokens of the step; 0 where there are none.
float loss_scale_of_token(double scale, int64_t trained_token_count);

// What a commit says of a run that is so far.
using RecordOf = std::function<offload::CommitRecord(const Progress&)>;

// The pending update's constants: written by the verdict op, read by the updates of the next
// period. The slot of Kind::verdict.
struct VerdictRecord {
    offload::Verdict verdict = offload::Verdict::skip;
    cpu_adam::AdamStep adam;
};

// One part's norm: the slot of Kind::norm.
struct NormRecord {
    offload::ExactSum squares;
    std::optional<uint32_t> non_finite_tensor;
};

// The data of one open period. Two are open at most; each is used by the period of its parity.
struct PeriodData {
    int64_t step = 0;
    bool trains = true;
    StepBatch batch;
    std::vector<HeadResult> losses;  // one per micro-batch
    StepOutcome outcome;
};

}  // namespace headrace::engine
