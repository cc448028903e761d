#include "tests/engine/reference.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "cpu_adam/state.h"
#include "cpu_adam/variants.h"
#include "kernels/host/reduce.h"
#include "offload/fp16.h"

namespace headrace::engine::tests {

using offload::TensorPiece;

namespace {

struct Stash {
    std::vector<std::vector<std::byte>> layers;
    offload::ExactSum squares;
    bool finite = true;
};

std::vector<TensorPiece> whole_tensors(const offload::LayerLayout& layer) {
    std::vector<TensorPiece> pieces;
    for (size_t tensor = 0; tensor < layer.tensors.size(); ++tensor) {
        pieces.push_back({.tensor = static_cast<uint32_t>(tensor),
                          .first_in_tensor = 0,
                          .first_in_part = layer.tensors[tensor].first_element,
                          .element_count = layer.tensors[tensor].element_count});
    }
    return pieces;
}

Stash reduce_all(const FlatModel& model, const FlatGradients& gradients, offload::Dtype dtype) {
    Stash stash;
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        const std::vector<float>& first_use = gradients.accumulators[layer];
        const std::vector<TensorPiece> pieces = whole_tensors(model.layout.layers[layer]);
        std::vector<std::byte> bytes(offload::bytes_of(dtype, first_use.size()));
        const kernels::ReduceOutput output = kernels::reduce_part(
            kernels::reduce_rows().back(),
            {.first_use = first_use,
             .second_use =
                 layer == 0 ? std::span<const float>(gradients.tied_use) : std::span<const float>(),
             .pieces = pieces,
             .stash_dtype = dtype,
             .stash = bytes});
        stash.squares.merge(output.squares);
        stash.finite = stash.finite && !output.non_finite_tensor;
        stash.layers.push_back(std::move(bytes));
    }
    return stash;
}

double clip_factor(double norm, double max_grad_norm) {
    CHECK_GE(max_grad_norm, 0.0);
    return max_grad_norm == 0 ? 1.0 : std::min(1.0, max_grad_norm / (norm + 1e-6));
}

void update_all(ReferenceRun& run, const Stash& stash, const ReferenceOptions& options,
                const cpu_adam::AdamStep& step) {
    const cpu_adam::StepFactors factors = cpu_adam::factors_of(step);
    for (size_t layer = 0; layer < run.states.size(); ++layer) {
        const uint64_t element_count = run.model.layout.layers[layer].element_count;
        cpu_adam::update_range(
            cpu_adam::rows().back(), factors,
            {.element_count = element_count,
             .weight_dtype = run.model.dtype,
             .format = options.states,
             .gradient_dtype = options.gradients,
             .weight = run.model.weights[layer],
             .state = run.states[layer],
             .gradient = stash.layers[layer],
             .rounding = {.seed = options.rounding_seed, .layer = static_cast<uint32_t>(layer)}},
            {.first_element = 0, .element_count = element_count});
    }
}

// Moments of zero; the master of an fp16 weight is the weight.
std::vector<std::byte> fresh_state(const FlatModel& model, size_t layer,
                                   offload::StateFormat format) {
    const uint64_t element_count = model.layout.layers[layer].element_count;
    std::vector<std::byte> state(offload::opt_bytes(model.dtype, format, element_count));
    const cpu_adam::StateView view =
        cpu_adam::view_state(model.dtype, format, state, element_count);
    const auto* const halves = reinterpret_cast<const uint16_t*>(model.weights[layer].data());
    for (size_t i = 0; i < view.master.size(); ++i) {
        view.master[i] = offload::fp16_to_float(halves[i]);
    }
    return state;
}

}  // namespace

ReferenceRun run_reference(FlatModel model, const std::vector<std::vector<MicroBatch>>& batches,
                           const ReferenceOptions& options) {
    CHECK_EQ(batches.size(), options.learning_rates.size());
    ReferenceRun run{std::move(model), {}, {}};
    for (size_t layer = 0; layer < run.model.layer_count(); ++layer) {
        run.states.push_back(fresh_state(run.model, layer, options.states));
    }
    LossScale scale = initial_loss_scale(options.loss_scale);
    const LlamaCompute compute(run.model.config, run.model.dtype);
    cpu_adam::AdamStep adam = options.adam;
    adam.adam_step = 1;
    for (size_t k = 0; k < batches.size(); ++k) {
        const FlatGradients gradients =
            accumulate_gradients(compute, run.model, batches[k], scale.scale);
        const Stash stash = reduce_all(run.model, gradients, options.gradients);
        ReferenceStep step;
        step.loss = gradients.loss_sum / static_cast<double>(gradients.trained_token_count);
        step.skipped = !stash.finite;
        step.loss_scale = scale.scale;
        step.grad_norm = stash.finite ? std::sqrt(stash.squares.to_double()) / scale.scale
                                      : std::numeric_limits<double>::quiet_NaN();
        run.steps.push_back(step);
        scale = step.skipped ? after_overflow(scale, options.loss_scale)
                             : after_good_step(scale, options.loss_scale);
        if (step.skipped) continue;
        adam.learning_rate = options.learning_rates[k];
        adam.gradient_scale =
            static_cast<float>(clip_factor(step.grad_norm, options.max_grad_norm)) /
            static_cast<float>(step.loss_scale);
        update_all(run, stash, options, adam);
        adam.adam_step += 1;
    }
    return run;
}

std::string digest_of(const ReferenceRun& run) {
    const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                                XXH3_freeState);
    CHECK(state != nullptr);
    XXH3_128bits_reset(state.get());
    for (const ReferenceStep& step : run.steps) {
        XXH3_128bits_update(state.get(), &step.loss, sizeof(step.loss));
        XXH3_128bits_update(state.get(), &step.grad_norm, sizeof(step.grad_norm));
    }
    for (size_t layer = 0; layer < run.states.size(); ++layer) {
        const std::vector<std::byte>& weights = run.model.weights[layer];
        XXH3_128bits_update(state.get(), weights.data(), weights.size());
        XXH3_128bits_update(state.get(), run.states[layer].data(), run.states[layer].size());
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
    char text[33];
    std::snprintf(text, sizeof(text), "%016llx%016llx",
                  static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return text;
}

}  // namespace headrace::engine::tests
