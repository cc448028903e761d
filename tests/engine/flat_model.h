// FlatModel: a Llama as plain vectors, one flat run per layer, and one pass over micro-batches as a
// straight loop. What the tests of engine/torch and the independent reference share.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/torch/llama.h"
#include "offload/dtype.h"
#include "offload/part.h"

namespace headrace::engine::tests {

// Gives the fp32 elements of a tensor by its name and count.
using WeightSource = std::function<std::vector<float>(const std::string&, uint64_t)>;

struct FlatModel {
    LlamaConfig config;
    offload::Dtype dtype = offload::Dtype::fp32;
    offload::Layout layout;                       // layers 0 (embedding), 1 .. L (blocks), L + 1
    std::vector<std::vector<std::byte>> weights;  // per layer: its run in the compute dtype

    size_t layer_count() const { return layout.layers.size(); }
};

// Weights are rounded to `dtype`; gaps are zero.
FlatModel make_flat_model(const LlamaConfig& config, offload::Dtype dtype,
                          const WeightSource& source);

struct FlatGradients {
    std::vector<std::vector<float>> accumulators;  // per layer: its run
    std::vector<float> tied_use;                   // tied: the embedding's use by the head
    double loss_sum = 0;
    int64_t trained_token_count = 0;
};

// Forward and backward of every micro-batch, ascending. Accumulators begin as NaN: the first
// micro-batch must store all of them. loss_scale is scale / trained tokens of all
// micro-batches.
FlatGradients accumulate_gradients(const LlamaCompute& compute, const FlatModel& model,
                                   const std::vector<MicroBatch>& batches, double scale = 1);

// The hidden states that enter the head.
std::vector<std::byte> forward_hidden(const LlamaCompute& compute, const FlatModel& model,
                                      const MicroBatch& batch);

// Tensor `tensor` of layer `layer` out of a run of that layer.
template <typename T>
std::vector<T> tensor_of(const offload::Layout& layout, const std::vector<T>& run, size_t layer,
                         size_t tensor) {
    const offload::TensorExtent& extent = layout.layers.at(layer).tensors.at(tensor);
    CHECK_LE(extent.first_element + extent.element_count, run.size());
    const auto begin = run.begin() + static_cast<std::ptrdiff_t>(extent.first_element);
    return {begin, begin + static_cast<std::ptrdiff_t>(extent.element_count)};
}

}  // namespace headrace::engine::tests
