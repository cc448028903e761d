// Goal: LlamaCompute computes what transformers computes, and the same bits whatever the address,
// the repetition or the calling thread.
// Method: goldens of tiny Llamas (tests/engine/goldens) in fp32: logits, loss, every gradient; bf16
// against the same goldens with the tolerance of its rounding; then equalities bit for bit.
#include "engine/torch/llama.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "offload/units.h"
#include "tests/engine/flat_model.h"
#include "tests/engine/goldens/golden.h"

namespace headrace::engine::tests {
namespace {

using offload::Dtype;

std::vector<MicroBatch> all_batches(const Golden& golden) {
    std::vector<MicroBatch> batches;
    for (int index = 0; index < Golden::batch_count; ++index) {
        batches.push_back(golden.batch(index));
    }
    return batches;
}

// ||a - b|| / ||b||
double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < b.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        norm += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / norm);
}

// The gradient of a tensor: of the embedding, the sum over its uses.
std::vector<float> gradient_of(const FlatModel& model, const FlatGradients& gradients, size_t layer,
                               size_t tensor) {
    std::vector<float> values =
        tensor_of(model.layout, gradients.accumulators[layer], layer, tensor);
    if (layer == 0 && model.config.tied) {
        const std::vector<float> use = tensor_of(model.layout, gradients.tied_use, 0, 0);
        for (size_t i = 0; i < values.size(); ++i) values[i] += use[i];
    }
    return values;
}

bool same_bits(const FlatGradients& a, const FlatGradients& b) {
    const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
        return x.size() == y.size() &&
               std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    };
    return a.loss_sum == b.loss_sum && equal(a.tied_use, b.tied_use) &&
           std::ranges::equal(a.accumulators, b.accumulators, equal);
}

class Llama : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override { start_torch(1); }
};

TEST_P(Llama, LogitsEqualTransformers) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::fp32);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    const MicroBatch batch = golden.batch(0);
    const std::vector<std::byte> hidden = forward_hidden(compute, model, batch);
    std::vector<int64_t> positions;
    for (int64_t token = 0; token < batch.token_count(); ++token) positions.push_back(token);
    const std::vector<float> expected = golden.values<float>("logits");
    std::vector<float> logits(expected.size());
    LlamaCompute::Head io{.weights = model.weights.back(), .hidden_in = hidden};
    if (golden.config().tied) io.embedding_weights = model.weights.front();
    compute.logits(batch, io, positions, logits);
    for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 1e-5) << i;
}

TEST_P(Llama, LossAndEveryGradientEqualTransformers) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::fp32);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    const FlatGradients gradients = accumulate_gradients(compute, model, all_batches(golden));
    const double loss = gradients.loss_sum / static_cast<double>(gradients.trained_token_count);
    EXPECT_NEAR(loss, golden.values<double>("loss").at(0), 1e-5);
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        const auto& tensors = model.layout.specs[layer].tensors;
        for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
            const std::vector<float> expected =
                golden.values<float>("grad." + tensors[tensor].name);
            EXPECT_LE(relative_distance(gradient_of(model, gradients, layer, tensor), expected),
                      1e-4)
                << tensors[tensor].name;
        }
    }
}

TEST_P(Llama, Bf16IsAsCloseAsItsRounding) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::bf16);
    const FlatModel model = make_flat_model(golden.config(), Dtype::bf16, golden_weight);
    const FlatGradients gradients = accumulate_gradients(compute, model, all_batches(golden));
    const double loss = gradients.loss_sum / static_cast<double>(gradients.trained_token_count);
    const double expected_loss = golden.values<double>("loss").at(0);
    EXPECT_NEAR(loss, expected_loss, 1e-2 * expected_loss);
    EXPECT_NE(loss, expected_loss);
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        const auto& tensors = model.layout.specs[layer].tensors;
        for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
            const std::vector<float> expected =
                golden.values<float>("grad." + tensors[tensor].name);
            EXPECT_LE(relative_distance(gradient_of(model, gradients, layer, tensor), expected),
                      4e-2)
                << tensors[tensor].name;
        }
    }
}

// The loss is scaled, as fp16 training does: gradients of the unscaled one would vanish.
TEST_P(Llama, Fp16IsAsCloseAsItsRounding) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::fp16);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp16, golden_weight);
    constexpr float scale = 1024.0f;
    const FlatGradients gradients =
        accumulate_gradients(compute, model, all_batches(golden), scale);
    const double loss = gradients.loss_sum / static_cast<double>(gradients.trained_token_count);
    const double expected_loss = golden.values<double>("loss").at(0);
    EXPECT_NEAR(loss, expected_loss, 2e-3 * expected_loss);
    EXPECT_NE(loss, expected_loss);
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        const auto& tensors = model.layout.specs[layer].tensors;
        for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
            std::vector<float> values = gradient_of(model, gradients, layer, tensor);
            for (float& value : values) value /= scale;
            EXPECT_LE(
                relative_distance(values, golden.values<float>("grad." + tensors[tensor].name)),
                6e-3)
                << tensors[tensor].name;
        }
    }
}

// The fused kernels and the ones made of ATen calls differ by rounding only.
TEST_P(Llama, ReferenceKernelsAgree) {
    const Golden golden(GetParam());
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const FlatModel model = make_flat_model(golden.config(), dtype, golden_weight);
        const FlatGradients fused =
            accumulate_gradients(LlamaCompute(golden.config(), dtype), model, all_batches(golden));
        const FlatGradients reference = accumulate_gradients(
            LlamaCompute(golden.config(), dtype, Kernels::reference), model, all_batches(golden));
        EXPECT_NEAR(fused.loss_sum, reference.loss_sum, 1e-3 * reference.loss_sum);
        for (size_t layer = 0; layer < model.layer_count(); ++layer) {
            for (size_t t = 0; t < model.layout.specs[layer].tensors.size(); ++t) {
                EXPECT_LE(relative_distance(gradient_of(model, fused, layer, t),
                                            gradient_of(model, reference, layer, t)),
                          dtype == Dtype::fp32 ? 1e-5 : 2e-2)
                    << model.layout.specs[layer].tensors[t].name;
            }
        }
    }
}

// Gradients come in the compute dtype: one micro-batch in bf16 leaves bf16 values only.
TEST_P(Llama, GradientsAreRoundedToTheComputeDtype) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::bf16);
    const FlatModel model = make_flat_model(golden.config(), Dtype::bf16, golden_weight);
    const FlatGradients gradients = accumulate_gradients(compute, model, {golden.batch(1)});
    for (size_t layer = 1; layer < model.layer_count(); ++layer) {
        for (const float value : gradients.accumulators[layer]) {
            ASSERT_EQ(value, offload::bf16_to_float(offload::float_to_bf16(value)));
        }
    }
}

// The first micro-batch stores everything, gaps as zeros, whatever the accumulators held.
TEST_P(Llama, StoringLeavesNothingOfTheOldBytes) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::fp32);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    const FlatGradients gradients = accumulate_gradients(compute, model, {golden.batch(0)});
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        const std::vector<float>& run = gradients.accumulators[layer];
        const offload::LayerLayout& layout = model.layout.layers[layer];
        std::vector<bool> covered(run.size(), false);
        for (const offload::TensorExtent& extent : layout.tensors) {
            std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(extent.first_element),
                        extent.element_count, true);
        }
        for (size_t i = 0; i < run.size(); ++i) {
            ASSERT_TRUE(std::isfinite(run[i])) << i;
            ASSERT_TRUE(covered[i] || run[i] == 0.0f) << i;
        }
    }
}

TEST_P(Llama, SameBitsAgainAndOnAnotherThread) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const Golden golden(GetParam());
        const LlamaCompute compute(golden.config(), dtype);
        const FlatModel model = make_flat_model(golden.config(), dtype, golden_weight);
        const auto run = [&] { return accumulate_gradients(compute, model, all_batches(golden)); };
        const FlatGradients first = run();
        EXPECT_TRUE(same_bits(first, run()));
        FlatGradients elsewhere;
        std::thread([&] { elsewhere = run(); }).join();
        EXPECT_TRUE(same_bits(first, elsewhere));
    }
}

TEST_P(Llama, SameBitsAtAnotherAddress) {
    const Golden golden(GetParam());
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const LlamaCompute compute(golden.config(), dtype);
        const FlatModel model = make_flat_model(golden.config(), dtype, golden_weight);
        const MicroBatch batch = golden.batch(1);
        const std::vector<std::byte> hidden = forward_hidden(compute, model, batch);
        const std::vector<std::byte>& weights = model.weights[1];
        std::vector<std::vector<float>> results;
        for (const size_t shift_bytes : {size_t{0}, size_t{32}}) {
            std::vector<std::byte> moved_weights(weights.size() + 128);
            const size_t misaligned = reinterpret_cast<uintptr_t>(moved_weights.data()) % 64;
            const size_t offset = 64 - misaligned + shift_bytes;
            std::ranges::copy(weights, moved_weights.begin() + static_cast<ptrdiff_t>(offset));
            std::vector<std::byte> gradient = hidden;
            std::vector<float> accumulator(model.layout.layers[1].element_count);
            compute.block_backward(
                batch, {.weights = std::span(moved_weights).subspan(offset, weights.size()),
                        .hidden_in = hidden,
                        .grad_out = gradient,
                        .grad_in = gradient,
                        .accumulator = accumulator});
            results.push_back(accumulator);
        }
        EXPECT_EQ(results[0], results[1]);
    }
}

// What forward keeps takes the place of the recompute: the outputs and every gradient have the same
// bits, and nothing around kept's memory is touched.
TEST_P(Llama, KeptAndRecomputedHaveTheSameBits) {
    const Golden golden(GetParam());
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const LlamaCompute compute(golden.config(), dtype);
        const FlatModel model = make_flat_model(golden.config(), dtype, golden_weight);
        const MicroBatch batch = golden.batch(1);
        const uint64_t kept_bytes = compute.kept_bytes(batch.row_count, batch.column_count);
        ASSERT_EQ(kept_bytes % offload::page_bytes, 0u);
        std::vector<std::byte> hidden(
            offload::bytes_of(dtype, batch.token_count() * golden.config().hidden_size));
        compute.embed(batch, {.weights = model.weights[0], .hidden_out = hidden});
        std::vector<std::byte> memory(kept_bytes + 2 * 64 + 64, std::byte{0xFF});
        const size_t first = 128 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
        const std::span<std::byte> kept = std::span(memory).subspan(first, kept_bytes);
        std::vector<std::byte> plain_out(hidden.size());
        std::vector<std::byte> kept_out(hidden.size());
        compute.block(batch,
                      {.weights = model.weights[1], .hidden_in = hidden, .hidden_out = plain_out});
        compute.block(batch, {.weights = model.weights[1],
                              .hidden_in = hidden,
                              .hidden_out = kept_out,
                              .kept_out = kept});
        EXPECT_EQ(plain_out, kept_out);
        for (size_t i = 0; i < memory.size(); ++i) {
            const bool inside = i >= first && i < first + kept_bytes;
            ASSERT_TRUE(inside || memory[i] == std::byte{0xFF}) << i;
        }
        const std::vector<std::byte> before = memory;
        std::vector<std::vector<std::byte>> gradients;
        std::vector<std::vector<float>> accumulators;
        for (const std::span<const std::byte> kept_in :
             {std::span<const std::byte>(), std::span<const std::byte>(kept)}) {
            gradients.emplace_back(hidden.size());
            accumulators.emplace_back(model.layout.layers[1].element_count);
            compute.block_backward(batch, {.weights = model.weights[1],
                                           .hidden_in = hidden,
                                           .grad_out = plain_out,
                                           .grad_in = gradients.back(),
                                           .accumulator = accumulators.back(),
                                           .kept_in = kept_in});
        }
        EXPECT_EQ(gradients[0], gradients[1]);
        EXPECT_EQ(accumulators[0], accumulators[1]);
        EXPECT_EQ(memory, before);
    }
}

TEST_P(Llama, HeadLossEqualsHead) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::bf16);
    const FlatModel model = make_flat_model(golden.config(), Dtype::bf16, golden_weight);
    const MicroBatch batch = golden.batch(0);
    const std::vector<std::byte> hidden = forward_hidden(compute, model, batch);
    LlamaCompute::Head io{.weights = model.weights.back(), .hidden_in = hidden};
    if (golden.config().tied) io.embedding_weights = model.weights.front();
    const HeadResult evaluated = compute.head_loss(batch, io);
    const FlatGradients trained = accumulate_gradients(compute, model, {batch});
    EXPECT_EQ(evaluated.loss_sum, trained.loss_sum);
    EXPECT_EQ(evaluated.trained_token_count, trained.trained_token_count);
}

// ACC-5: a micro-batch without a trained token adds exactly nothing, and its loss is 0.
TEST_P(Llama, AFullyMaskedBatchAddsNothing) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::fp32);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    const MicroBatch batch = golden.batch(0);
    MicroBatch masked = golden.batch(1);
    const std::vector<int32_t> no_targets(masked.targets.size(), -100);
    masked.targets = no_targets;
    const FlatGradients alone = accumulate_gradients(compute, model, {batch});
    const FlatGradients both = accumulate_gradients(compute, model, {batch, masked});
    EXPECT_TRUE(same_bits(alone, both));
}

// ACC-4: micro-batches weigh by their trained tokens, as one batch would.
TEST_P(Llama, acc_4_RowsSplitIntoMicroBatchesHaveTheSameGradient) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::fp32);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    const MicroBatch whole = golden.batch(0);
    const auto columns = static_cast<size_t>(whole.column_count);
    std::vector<MicroBatch> rows;
    for (size_t row = 0; row < static_cast<size_t>(whole.row_count); ++row) {
        rows.push_back({.row_count = 1,
                        .column_count = whole.column_count,
                        .input_ids = whole.input_ids.subspan(row * columns, columns),
                        .targets = whole.targets.subspan(row * columns, columns)});
    }
    const FlatGradients once = accumulate_gradients(compute, model, {whole});
    const FlatGradients split = accumulate_gradients(compute, model, rows);
    EXPECT_NEAR(once.loss_sum, split.loss_sum, 1e-5 * once.loss_sum);
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        for (size_t t = 0; t < model.layout.specs[layer].tensors.size(); ++t) {
            EXPECT_LE(relative_distance(gradient_of(model, split, layer, t),
                                        gradient_of(model, once, layer, t)),
                      2e-6)
                << model.layout.specs[layer].tensors[t].name;
        }
    }
}

// Samples of awkward lengths in one row, and each of them as a micro-batch of its own.
struct PackedSamples {
    explicit PackedSamples(const LlamaConfig& config) {
        std::minstd_rand random(5);
        for (const int32_t length : {13, 1, 9, 20}) {
            const auto first = static_cast<int32_t>(ids.size());
            for (int32_t i = 0; i < length; ++i) {
                ids.push_back(static_cast<int32_t>(random() % config.vocabulary_size));
                starts.push_back(first);
            }
            lengths.push_back(length);
        }
        for (size_t token = 0; token < ids.size(); ++token) {
            const bool is_last = token + 1 == ids.size() || starts[token + 1] != starts[token];
            targets.push_back(is_last ? -100 : ids[token + 1]);
        }
    }

    MicroBatch packed() const {
        return {.row_count = 1,
                .column_count = static_cast<int64_t>(ids.size()),
                .input_ids = ids,
                .targets = targets,
                .sample_starts = starts};
    }

    std::vector<MicroBatch> apart() const {
        std::vector<MicroBatch> batches;
        size_t first = 0;
        for (const size_t length : lengths) {
            batches.push_back({.row_count = 1,
                               .column_count = static_cast<int64_t>(length),
                               .input_ids = std::span(ids).subspan(first, length),
                               .targets = std::span(targets).subspan(first, length)});
            first += length;
        }
        return batches;
    }

    std::vector<int32_t> ids;
    std::vector<int32_t> targets;
    std::vector<int32_t> starts;
    std::vector<size_t> lengths;
};

TEST_P(Llama, PackedSamplesTrainAsIfEachStoodAlone) {
    const Golden golden(GetParam());
    const PackedSamples samples(golden.config());
    for (const Kernels kernels : {Kernels::fused, Kernels::reference}) {
        const LlamaCompute compute(golden.config(), Dtype::fp32, kernels);
        const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
        const FlatGradients packed = accumulate_gradients(compute, model, {samples.packed()});
        const FlatGradients apart = accumulate_gradients(compute, model, samples.apart());
        EXPECT_EQ(packed.trained_token_count, apart.trained_token_count);
        EXPECT_NEAR(packed.loss_sum, apart.loss_sum, 1e-5 * apart.loss_sum);
        for (size_t layer = 0; layer < model.layer_count(); ++layer) {
            for (size_t t = 0; t < model.layout.specs[layer].tensors.size(); ++t) {
                EXPECT_LE(relative_distance(gradient_of(model, packed, layer, t),
                                            gradient_of(model, apart, layer, t)),
                          2e-6)
                    << model.layout.specs[layer].tensors[t].name;
            }
        }
    }
}

// What stands in another sample of the row changes no bit, before it or behind it.
TEST_P(Llama, APackedSampleDoesNotSeeItsNeighbours) {
    const Golden golden(GetParam());
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const LlamaCompute compute(golden.config(), dtype);
        const FlatModel model = make_flat_model(golden.config(), dtype, golden_weight);
        PackedSamples samples(golden.config());
        const std::vector<std::byte> before = forward_hidden(compute, model, samples.packed());
        for (size_t token = 0; token < samples.ids.size(); ++token) {
            if (samples.starts[token] == 14) continue;
            samples.ids[token] =
                static_cast<int32_t>((samples.ids[token] + 1) % golden.config().vocabulary_size);
        }
        const std::vector<std::byte> after = forward_hidden(compute, model, samples.packed());
        const size_t token_bytes = before.size() / samples.ids.size();
        for (size_t token = 0; token < samples.ids.size(); ++token) {
            const bool is_same = std::memcmp(before.data() + token * token_bytes,
                                             after.data() + token * token_bytes, token_bytes) == 0;
            EXPECT_EQ(is_same, samples.starts[token] == 14) << token;
        }
    }
}

TEST_P(Llama, OneSampleARowIsWhatPackingSaysNothingOf) {
    const Golden golden(GetParam());
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const LlamaCompute compute(golden.config(), dtype);
        const FlatModel model = make_flat_model(golden.config(), dtype, golden_weight);
        MicroBatch batch = golden.batch(0);
        const FlatGradients plain = accumulate_gradients(compute, model, {batch});
        const std::vector<int32_t> starts(static_cast<size_t>(batch.token_count()), 0);
        batch.sample_starts = starts;
        EXPECT_TRUE(same_bits(plain, accumulate_gradients(compute, model, {batch})));
    }
}

// ACC-2: nothing but the last of several micro-batches is lost, whatever their number.
TEST_P(Llama, acc_2_FourEqualMicroBatchesAddUp) {
    const Golden golden(GetParam());
    const LlamaCompute compute(golden.config(), Dtype::fp32);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    const MicroBatch batch = golden.batch(1);
    const FlatGradients one = accumulate_gradients(compute, model, {batch});
    const FlatGradients four = accumulate_gradients(compute, model, {batch, batch, batch, batch});
    EXPECT_EQ(four.trained_token_count, 4 * one.trained_token_count);
    EXPECT_NEAR(four.loss_sum, 4 * one.loss_sum, 1e-9);
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        EXPECT_LE(relative_distance(four.accumulators[layer], one.accumulators[layer]), 1e-6);
    }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Llama, testing::ValuesIn(golden_names),
                         [](const auto& param_info) { return param_info.param; });

// Threads may change bits (they are in the numerics record), but never more than rounding.
TEST(LlamaThreads, TwoThreadsAgreeWithOne) {
    const Golden golden("tied");
    const LlamaCompute compute(golden.config(), Dtype::fp32);
    const FlatModel model = make_flat_model(golden.config(), Dtype::fp32, golden_weight);
    start_torch(1);
    const FlatGradients one = accumulate_gradients(compute, model, {golden.batch(0)});
    start_torch(2);
    const FlatGradients two = accumulate_gradients(compute, model, {golden.batch(0)});
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
        EXPECT_LE(relative_distance(two.accumulators[layer], one.accumulators[layer]), 1e-5);
    }
    RecordProperty("same_bits", same_bits(one, two) ? "yes" : "no");
}

}  // namespace
}  // namespace headrace::engine::tests
