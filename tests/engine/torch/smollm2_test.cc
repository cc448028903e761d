// Goal: a real pretrained model gives the loss that transformers gives.
// Method: SmolLM2-135M-Instruct as scripts/prepare_model.py makes it, forward over a fixed batch of
// text (tests/engine/goldens/make_smollm2_golden.py), in fp32 and bf16. Skips itself where the
// model has not been prepared. Takes some seconds and 0.7 GB.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/checkpoint/checkpoint.h"
#include "engine/torch/llama.h"
#include "tests/engine/flat_model.h"

namespace headrace::engine::tests {
namespace {

using offload::Dtype;

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

double mean_loss(const std::string& folder, Dtype dtype, const nlohmann::json& golden) {
    const auto config =
        parse_llama_config(text_of(std::filesystem::path(folder) / "config.json"), folder).value();
    const Checkpoint checkpoint = Checkpoint::open(folder).value();
    const WeightSource source = [&](const std::string& name, uint64_t element_count) {
        std::vector<float> values(element_count);
        const offload::Status status = checkpoint.read_elements(
            name, 0,
            {.dtype = Dtype::fp32, .weights = std::as_writable_bytes(std::span(values)), .lo = {}});
        CHECK(status.ok());
        return values;
    };
    const FlatModel model = make_flat_model(config, dtype, source);
    const LlamaCompute compute(config, dtype);
    const auto ids = golden["input_ids"].get<std::vector<int32_t>>();
    const auto targets = golden["targets"].get<std::vector<int32_t>>();
    const MicroBatch batch{golden["rows"].get<int64_t>(), golden["columns"].get<int64_t>(), ids,
                           targets};
    const std::vector<std::byte> hidden = forward_hidden(compute, model, batch);
    const HeadResult result = compute.head_loss(batch, {.embedding_weights = model.weights.front(),
                                                        .weights = model.weights.back(),
                                                        .hidden_in = hidden});
    EXPECT_GT(result.trained_token_count, 0);
    return result.loss_sum / static_cast<double>(result.trained_token_count);
}

TEST(SmolLm2, LossEqualsTransformers) {
    const std::string folder = HEADRACE_SMOLLM2;
    if (!std::filesystem::exists(std::filesystem::path(folder) / "model.safetensors")) {
        GTEST_SKIP() << folder << " is not there: scripts/prepare_model.py makes it";
    }
    start_torch(2);
    const auto golden = nlohmann::json::parse(text_of(HEADRACE_GOLDENS "/smollm2.json"));
    const double fp32 = golden["loss_fp32"].get<double>();
    const double bf16 = golden["loss_bf16"].get<double>();
    EXPECT_NEAR(mean_loss(folder, Dtype::fp32, golden), fp32, 1e-4 * fp32);
    EXPECT_NEAR(mean_loss(folder, Dtype::bf16, golden), bf16, 1e-2 * bf16);
}

}  // namespace
}  // namespace headrace::engine::tests
