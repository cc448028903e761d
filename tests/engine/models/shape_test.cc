// Goal: a plan knows the sizes of every model that comes with the project, and of configs as they
// lie on the hub, with what these leave out. Method: the published number of parameters of each;
// fields by hand; what is not known is refused by name.
#include "engine/models/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "engine/models/effort.h"

namespace headrace::engine {
namespace {

using offload::Result;
using testing::HasSubstr;

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Parameters as their makers give them: safetensors metadata on the hub, exactly.
TEST(Shape, OfEveryModelHereHasThePublishedParameters) {
    const std::map<std::string, uint64_t> published = {
        {"llama-2-7b", 6'738'415'616},   {"llama-2-13b", 13'015'864'320},
        {"llama-2-70b", 68'976'648'192}, {"codellama-34b", 33'743'970'304},
        {"llama-3-8b", 8'030'261'248},   {"llama-3-70b", 70'553'706'496},
        {"llama-3.1-8b", 8'030'261'248}, {"llama-3.1-70b", 70'553'706'496},
        {"llama-3.2-1b", 1'235'814'400}, {"llama-3.2-3b", 3'212'749'824},
        {"mistral-7b", 7'248'023'552},   {"mistral-nemo-12b", 12'247'782'400},
        {"qwen2.5-7b", 7'615'616'512},   {"qwen2.5-14b", 14'770'033'664},
        {"qwen2.5-32b", 32'763'876'352}, {"qwen2.5-72b", 72'706'203'648},
        {"qwen3-8b", 8'190'735'360},     {"qwen3-14b", 14'768'307'200},
        {"qwen3-32b", 32'762'123'264}};
    size_t gemma_count = 0;
    size_t found_count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(HEADRACE_CONFIGS "/models")) {
        const std::string name = entry.path().stem().string();
        const Result<Shape> shape = parse_shape(text_of(entry.path()), entry.path());
        ASSERT_TRUE(shape.ok()) << shape.error().text();
        gemma_count += name.starts_with("gemma");
        const auto expected = published.find(name);
        if (expected == published.end()) continue;
        ++found_count;
        EXPECT_EQ(parameter_count(shape->config), expected->second) << name;
        EXPECT_EQ(shape->trains, name.find("llama") != std::string::npos) << name;
    }
    EXPECT_EQ(found_count, published.size());
    EXPECT_EQ(gemma_count, 3u);
}

// Gemma 3 technical report, table 1: parameters outside the embedding, without the vision encoder.
TEST(Shape, OfGemmaIsItsTextModel) {
    const std::map<std::string, double> million = {
        {"gemma-3-4b", 3209}, {"gemma-3-12b", 10759}, {"gemma-3-27b", 25600}};
    for (const auto& [name, expected] : million) {
        const std::string path = HEADRACE_CONFIGS "/models/" + name + ".json";
        const Result<Shape> shape = parse_shape(text_of(path), path);
        ASSERT_TRUE(shape.ok()) << shape.error().text();
        const LlamaConfig& config = shape->config;
        EXPECT_TRUE(config.tied);
        const auto embedding = static_cast<double>(config.vocabulary_size * config.hidden_size);
        const double others = static_cast<double>(parameter_count(config)) - embedding;
        EXPECT_NEAR(others / 1e6 / expected, 1.0, 0.001) << name;
    }
}

// As gemma-3-4b-it lies on the hub: heads and words are transformers' defaults.
TEST(Shape, WhatAConfigLeavesOutIsFilledIn) {
    const char* text = R"({"architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
        "vision_config": {"hidden_size": 1152}})";
    const Result<Shape> shape = parse_shape(text, "config.json");
    ASSERT_TRUE(shape.ok()) << shape.error().text();
    const std::string path = HEADRACE_CONFIGS "/models/gemma-3-4b.json";
    EXPECT_EQ(shape->config, parse_shape(text_of(path), path)->config);
    EXPECT_FALSE(shape->trains);
}

LlamaConfig read(const std::string& model_type, const std::string& more) {
    const auto shape = parse_shape(R"({"model_type": ")" + model_type +
                                       R"(", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 1000)" + more + "}",
                                   "config.json");
    EXPECT_TRUE(shape.ok()) << shape.error().text();
    return shape.ok() ? shape->config : LlamaConfig{};
}

TEST(Shape, WindowsLimitWhatIsComputed) {
    const LlamaConfig full = read("mistral", "");
    const LlamaConfig windowed = read("mistral", R"(, "sliding_window": 32)");
    EXPECT_EQ(windowed.extras.window_tokens, 32);
    EXPECT_EQ(windowed.extras.full_attention_period, 0);
    const auto forward = [](const LlamaConfig& config, int64_t columns, size_t layer) {
        return effort_of(config, 1, columns).layers[layer].forward_flop;
    };
    EXPECT_EQ(forward(full, 32, 1), forward(windowed, 32, 1));
    // 100 tokens see 5000 pairs; a window of 32 leaves out the triangle of the 68 beyond it.
    EXPECT_DOUBLE_EQ(forward(full, 100, 1) - forward(windowed, 100, 1), 4.0 * 68 * 68 / 2 * 64);
    const LlamaConfig gemma = read("gemma3_text", R"(, "sliding_window": 32)");
    EXPECT_LT(forward(gemma, 100, 5), forward(gemma, 100, 6)) << "block 6 of 6 sees all";
    EXPECT_EQ(forward(gemma, 100, 6), forward(full, 100, 6));
    const LlamaConfig listed = read("qwen3", R"(, "sliding_window": 32, "layer_types":
        ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])");
    EXPECT_EQ(listed.extras.full_attention_period, 2);
    const LlamaConfig off = read("qwen2", R"(, "sliding_window": 32, "use_sliding_window": false)");
    EXPECT_EQ(off.extras.window_tokens, 0);
}

TEST(Shape, WithoutItsExtrasItIsALlamas) {
    const LlamaConfig qwen = read("qwen2", "");
    const LlamaConfig llama = read("llama", R"(, "architectures": ["LlamaForCausalLM"])");
    EXPECT_EQ(parameter_count(qwen) - parameter_count(without_extras(qwen)), 6u * (64 + 32 + 32));
    EXPECT_EQ(parameter_count(without_extras(qwen)), parameter_count(llama));
}

TEST(Shape, WhatIsNotKnownIsRefusedByName) {
    const auto refusal = [](const char* text) {
        const auto shape = parse_shape(text, "config.json");
        return shape.ok() ? std::string() : shape.error().text();
    };
    EXPECT_THAT(refusal(R"({"model_type": "mixtral"})"),
                HasSubstr("model_type is \"mixtral\", which cannot be planned; known are llama"));
    EXPECT_THAT(refusal(R"({"model_type": "qwen3"})"), HasSubstr("hidden_size is missing"));
    EXPECT_THAT(refusal(R"({"model_type": "gemma3"})"), HasSubstr("text_config is missing"));
    EXPECT_THAT(refusal("[1]"), HasSubstr("not a JSON object"));
    EXPECT_THAT(refusal(R"({"model_type": 3})"), HasSubstr("config.json"));
    EXPECT_THAT(refusal(R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 10,
        "quantization_config": {"bits": 4}})"),
                HasSubstr("quantization_config"));
}

}  // namespace
}  // namespace headrace::engine
