// The independent reference: a training run as a straight loop, with no schedule, slot, store, part
// or thread. It shares with the engine only the arithmetic: LlamaCompute, the scalar row of reduce,
// the scalar row of AdamW. The engine must give the same bits.
//
// One step, over its micro-batches in ascending order:
//   N        trained tokens of all micro-batches
//   forward, backward of each micro-batch with loss_scale = float(S / N), where S is the loss scale
//            (engine/config/loss_scale.h; 1 without); gradients into one fp32
//            accumulator per layer and one more for the tied embedding's use by the head; the first
//            micro-batch stores, the others add
//   loss     sum of the micro-batches' loss sums, in order, / N, in double
//   stash    per layer, reduce_part of its whole run in `gradients` dtype (the embedding's use by
//            itself is first_use, its use by the head second_use); squares merged over layers
//   norm     sqrt(squares.to_double()) / S, before clipping
//   factor   float(min(1.0, max_grad_norm / (norm + 1e-6))), as torch; 1 if max_grad_norm is 0
//   skipped  if any gradient is not finite: nothing changes, the Adam step is not counted
//   update   AdamW of every layer's run with gradient_scale = float(factor / S)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu_adam/adamw.h"
#include "engine/config/loss_scale.h"
#include "offload/state_format.h"
#include "tests/engine/flat_model.h"

namespace headrace::engine::tests {

struct ReferenceOptions {
    offload::Dtype gradients = offload::Dtype::bf16;  // the stash
    offload::StateFormat states = offload::StateFormat::fp32;
    uint64_t rounding_seed = 0;  // of states in bf16 and int8
    LossScaleRule loss_scale = unscaled;
    double max_grad_norm = 1.0;  // 0: no clipping
    // learning_rates[k] is used at step k; adam_step and gradient_scale are set by the loop.
    std::vector<double> learning_rates;
    cpu_adam::AdamStep adam;
};

struct ReferenceStep {
    double loss = 0;
    double grad_norm = 0;  // NaN at a skipped step
    bool skipped = false;
    double loss_scale = 1;
};

struct ReferenceRun {
    FlatModel model;                             // weights after the last step
    std::vector<std::vector<std::byte>> states;  // per layer, as cpu_adam/state.h
    std::vector<ReferenceStep> steps;
};

// Trains learning_rates.size() steps from `model` with zero states; step k takes batches[k].
ReferenceRun run_reference(FlatModel model, const std::vector<std::vector<MicroBatch>>& batches,
                           const ReferenceOptions& options);

// XXH3-128 in hexadecimal over, in this order: per step loss and grad_norm (doubles); then per
// layer its weights' run and its state's bytes. Padding is included: it is zero.
std::string digest_of(const ReferenceRun& run);

}  // namespace headrace::engine::tests
