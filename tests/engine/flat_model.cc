#include "tests/engine/flat_model.h"

#include <cstring>
#include <limits>

#include "offload/fp16.h"

namespace headrace::engine::tests {

using offload::Dtype;

FlatModel make_flat_model(const LlamaConfig& config, Dtype dtype, const WeightSource& source) {
    FlatModel model{config,
                    dtype,
                    offload::make_layout(layers_of(config), offload::block_elements).value(),
                    {}};
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        const offload::LayerLayout& layout = model.layout.layers[layer];
        std::vector<std::byte> run(offload::bytes_of(dtype, layout.element_count));
        for (size_t tensor = 0; tensor < layout.tensors.size(); ++tensor) {
            const offload::TensorExtent& extent = layout.tensors[tensor];
            const std::vector<float> values =
                source(model.layout.specs[layer].tensors[tensor].name, extent.element_count);
            CHECK_EQ(values.size(), extent.element_count);
            std::byte* target = run.data() + offload::bytes_of(dtype, extent.first_element);
            for (const float value : values) {
                const uint16_t rounded = dtype == Dtype::fp16 ? offload::float_to_fp16(value)
                                                              : offload::float_to_bf16(value);
                const uint64_t width = offload::element_bytes(dtype);
                std::memcpy(target,
                            dtype == Dtype::fp32 ? static_cast<const void*>(&value)
                                                 : static_cast<const void*>(&rounded),
                            width);
                target += width;
            }
        }
        model.weights.push_back(std::move(run));
    }
    return model;
}

namespace {

using Hidden = std::vector<std::byte>;

// Inputs of blocks 0 .. L - 1, then the input of the head.
std::vector<Hidden> forward(const LlamaCompute& compute, const FlatModel& model,
                            const MicroBatch& batch) {
    const size_t block_count = model.layer_count() - 2;
    const auto element_count =
        static_cast<uint64_t>(batch.token_count() * model.config.hidden_size);
    std::vector<Hidden> hidden(block_count + 1,
                               Hidden(offload::bytes_of(model.dtype, element_count)));
    compute.embed(batch, {.weights = model.weights.front(), .hidden_out = hidden[0]});
    for (size_t block = 0; block < block_count; ++block) {
        compute.block(batch, {.weights = model.weights[block + 1],
                              .hidden_in = hidden[block],
                              .hidden_out = hidden[block + 1]});
    }
    return hidden;
}

}  // namespace

std::vector<std::byte> forward_hidden(const LlamaCompute& compute, const FlatModel& model,
                                      const MicroBatch& batch) {
    return forward(compute, model, batch).back();
}

FlatGradients accumulate_gradients(const LlamaCompute& compute, const FlatModel& model,
                                   const std::vector<MicroBatch>& batches, double scale) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    FlatGradients result;
    for (const offload::LayerLayout& layer : model.layout.layers) {
        result.accumulators.emplace_back(layer.element_count, nan);
    }
    const bool tied = model.config.tied;
    if (tied) result.tied_use.assign(model.layout.layers.front().element_count, nan);
    int64_t trained_token_count = 0;
    for (const MicroBatch& batch : batches) {
        for (const int32_t target : batch.targets) trained_token_count += target == -100 ? 0 : 1;
    }
    CHECK_GT(trained_token_count, 0);
    Accumulate mode = Accumulate::store;
    for (const MicroBatch& batch : batches) {
        const std::vector<Hidden> hidden = forward(compute, model, batch);
        Hidden gradient(hidden.front().size());
        const HeadResult head = compute.head(
            batch,
            {.embedding_weights = tied ? std::span<const std::byte>(model.weights.front())
                                       : std::span<const std::byte>(),
             .weights = model.weights.back(),
             .hidden_in = hidden.back(),
             .grad_in = gradient,
             .embedding_accumulator = result.tied_use,
             .accumulator = result.accumulators.back(),
             .accumulate = mode,
             .loss_scale = static_cast<float>(scale / static_cast<double>(trained_token_count))});
        for (size_t layer = model.layer_count() - 2; layer >= 1; --layer) {
            compute.block_backward(batch, {.weights = model.weights[layer],
                                           .hidden_in = hidden[layer - 1],
                                           .grad_out = gradient,
                                           .grad_in = gradient,
                                           .accumulator = result.accumulators[layer],
                                           .accumulate = mode});
        }
        compute.embed_backward(batch, {.hidden_grad = gradient,
                                       .accumulator = result.accumulators.front(),
                                       .accumulate = mode});
        result.loss_sum += head.loss_sum;
        result.trained_token_count += head.trained_token_count;
        mode = Accumulate::add;
    }
    CHECK_EQ(result.trained_token_count, trained_token_count);
    return result;
}

}  // namespace headrace::engine::tests
