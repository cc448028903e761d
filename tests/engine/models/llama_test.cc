// Goal: every config.json is understood as transformers understands it, or refused naming what is
// not supported; the layers have the names, shapes and order that the rest relies on.
// Method: configs of both generations as they are found in the wild, then tables of one change
// each.
#include "engine/models/llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "offload/part.h"

namespace headrace::engine {
namespace {

using nlohmann::json;
using offload::ErrorCode;
using offload::LayerSpec;
using offload::Result;
using testing::HasSubstr;

// As transformers 4 wrote it for Llama 3.2 (sizes shrunk).
constexpr const char* version_4 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008], "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 128, "initializer_range": 0.02, "intermediate_size": 344,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 259})";

// As transformers 5 writes it for SmolLM2-135M-Instruct.
constexpr const char* version_5 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 1, "dtype": "bfloat16", "eos_token_id": 2, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 576, "initializer_range": 0.02, "intermediate_size": 1536,
  "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2,
  "pretraining_tp": 1, "rms_norm_eps": 9.999999747378752e-06,
  "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
  "tie_word_embeddings": true, "transformers_version": "5.24.0", "use_cache": true,
  "vocab_size": 49152})";

LlamaConfig parsed(const json& config) {
    Result<LlamaConfig> result = parse_llama_config(config.dump(), "m/config.json");
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().text());
    return result.ok() ? *result : LlamaConfig{};
}

TEST(Llama, ReadsVersion4) {
    LlamaConfig expected;
    expected.hidden_size = 128;
    expected.intermediate_size = 344;
    expected.block_count = 2;
    expected.head_count = 4;
    expected.kv_head_count = 2;
    expected.head_dim = 64;
    expected.vocabulary_size = 259;
    expected.max_positions = 131072;
    expected.rms_norm_eps = 1e-5;
    expected.tied = true;
    expected.rope = {RopeType::llama3, 500000.0, 32.0, 1.0, 4.0, 8192};
    EXPECT_EQ(parsed(json::parse(version_4)), expected);
}

TEST(Llama, ReadsVersion5) {
    const LlamaConfig config = parsed(json::parse(version_5));
    EXPECT_EQ(config.hidden_size, 576);
    EXPECT_EQ(config.head_dim, 64);
    EXPECT_EQ(config.kv_head_count, 3);
    EXPECT_EQ(config.rms_norm_eps, 9.999999747378752e-06);
    EXPECT_EQ(config.rope.type, RopeType::plain);
    EXPECT_EQ(config.rope.theta, 100000.0);
    EXPECT_TRUE(config.tied);
    EXPECT_EQ(parameter_count(config), 134'515'008u);
    EXPECT_EQ(head_chunk_tokens(config), 256);
}

TEST(Llama, FillsDefaultsAsTransformersDoes) {
    json object = json::parse(version_4);
    for (const char* key : {"head_dim", "num_key_value_heads", "rms_norm_eps", "rope_scaling",
                            "rope_theta", "tie_word_embeddings", "hidden_act", "model_type"}) {
        object.erase(key);
    }
    object["num_key_value_heads"] = nullptr;
    const LlamaConfig config = parsed(object);
    EXPECT_EQ(config.head_dim, 32);
    EXPECT_EQ(config.kv_head_count, 4);
    EXPECT_EQ(config.rms_norm_eps, 1e-6);
    EXPECT_EQ(config.rope, Rope{});
    EXPECT_FALSE(config.tied);
}

TEST(Llama, RopeFieldsHaveAnOrderOfPrecedence) {
    json object = json::parse(version_5);
    object["rope_theta"] = 1.0;
    EXPECT_EQ(parsed(object).rope.theta, 100000.0);
    object["rope_parameters"].erase("rope_theta");
    EXPECT_EQ(parsed(object).rope.theta, 1.0);
    object.erase("rope_theta");
    object["rotary_emb_base"] = 7.0;
    EXPECT_EQ(parsed(object).rope.theta, 7.0);

    object["rope_parameters"] = {
        {"type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
    EXPECT_EQ(parsed(object).rope.type, RopeType::llama3);
    EXPECT_EQ(parsed(object).rope.original_max_positions, 8192);
    object["original_max_position_embeddings"] = 4096;
    EXPECT_EQ(parsed(object).rope.original_max_positions, 4096);
    object["rope_parameters"]["original_max_position_embeddings"] = 2048;
    EXPECT_EQ(parsed(object).rope.original_max_positions, 2048);
}

TEST(Llama, RefusesByNameAndValue) {
    struct Row {
        const char* key;
        json value;
        const char* said;  // besides the key
    };
    const Row rows[] = {
        {"architectures", {"MistralForCausalLM"}, "MistralForCausalLM"},
        {"architectures", "LlamaForCausalLM", "not supported"},
        {"model_type", "qwen2", "\"qwen2\""},
        {"hidden_act", "gelu", "\"gelu\""},
        {"attention_bias", true, "true"},
        {"mlp_bias", true, "true"},
        {"attention_dropout", 0.1, "0.1"},
        {"pretraining_tp", 2, "2"},
        {"sliding_window", 4096, "4096"},
        {"quantization_config", {{"quant_method", "gptq"}}, "gptq"},
        {"layer_types", {"full_attention", "sliding_attention"}, "sliding_attention"},
        {"text_config", json::object(), "top level"},
        {"partial_rotary_factor", 0.5, "0.5"},
        {"num_key_value_heads", 4, "num_attention_heads 9"},
        {"num_key_value_heads", 0, "from 1"},
        {"head_dim", 63, "even"},
        {"hidden_size", nullptr, "missing"},
        {"hidden_size", -576, "-576"},
        {"hidden_size", 576.5, "576.5"},
        {"hidden_size", "576", "\"576\""},
        {"hidden_size", 18446744073709551615u, "18446744073709551615"},
        {"num_attention_heads", 1048575, "more than"},
        {"vocab_size", 1e12, "1000000000000"},
        {"rms_norm_eps", 0, "positive"},
        {"tie_word_embeddings", "yes", "\"yes\""},
        {"rope_theta", -1.0, "-1.0"},
        {"max_position_embeddings", 1, "1"},  // no token could be predicted
    };
    for (const Row& row : rows) {
        json object = json::parse(version_5);
        object["rope_parameters"].erase("rope_theta");
        object[row.key] = row.value;
        const Result<LlamaConfig> result = parse_llama_config(object.dump(), "m/config.json");
        ASSERT_FALSE(result.ok()) << row.key << " " << row.value;
        EXPECT_EQ(result.error().code, ErrorCode::bad_data);
        EXPECT_THAT(result.error().text(), HasSubstr("m/config.json"));
        EXPECT_THAT(result.error().text(), HasSubstr(row.key));
        EXPECT_THAT(result.error().text(), HasSubstr(row.said));
    }
}

TEST(Llama, RefusesRopesItCannotCompute) {
    struct Row {
        json rope;
        const char* said;
    };
    const json llama3 = json::parse(version_4)["rope_scaling"];
    json missing = llama3, swapped = llama3, shrinking = llama3;
    missing.erase("factor");
    swapped["low_freq_factor"] = 5.0;
    shrinking["factor"] = 0.5;
    const Row rows[] = {
        {{{"rope_type", "yarn"}}, "\"yarn\""},
        {{{"type", "linear"}, {"factor", 2.0}}, "\"linear\""},
        {{{"full_attention", {{"rope_type", "default"}}}}, "same rope for all layers"},
        {{{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}, "0.25"},
        {"llama3", "object"},
        {missing, "factor is missing"},
        {swapped, "low_freq_factor is 5"},
        {shrinking, "0.5"},
    };
    for (const Row& row : rows) {
        json object = json::parse(version_5);
        object["rope_parameters"] = row.rope;
        const Result<LlamaConfig> result = parse_llama_config(object.dump(), "c");
        ASSERT_FALSE(result.ok()) << row.rope;
        EXPECT_THAT(result.error().text(), HasSubstr(row.said));
    }
    json both = json::parse(version_5);
    both["rope_scaling"] = llama3;
    const Result<LlamaConfig> result = parse_llama_config(both.dump(), "c");
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().text(), HasSubstr("differ"));
}

TEST(Llama, RefusesWhatIsNotAModelConfig) {
    for (const char* text : {"", "[]", "{", "{}", "null", "{\"hidden_size\": 8}", "\xff\xfe"}) {
        const Result<LlamaConfig> result = parse_llama_config(text, "c");
        ASSERT_FALSE(result.ok()) << text;
        EXPECT_EQ(result.error().code, ErrorCode::bad_data);
    }
}

TEST(Llama, UntiedLayersHaveTheNamesAndShapesOfACheckpoint) {
    json object = json::parse(version_4);
    object["tie_word_embeddings"] = false;
    const LlamaConfig config = parsed(object);
    const std::vector<LayerSpec> layers = layers_of(config);
    ASSERT_EQ(layers.size(), 4u);
    EXPECT_EQ(layers[0].name, "embedding");
    EXPECT_EQ(layers[2].name, "layers.1");
    EXPECT_EQ(layers[3].name, "head");
    using Shape = std::vector<int64_t>;
    const std::vector<std::pair<const char*, Shape>> block = {
        {"input_layernorm", {128}},       {"self_attn.q_proj", {256, 128}},
        {"self_attn.k_proj", {128, 128}}, {"self_attn.v_proj", {128, 128}},
        {"self_attn.o_proj", {128, 256}}, {"post_attention_layernorm", {128}},
        {"mlp.gate_proj", {344, 128}},    {"mlp.up_proj", {344, 128}},
        {"mlp.down_proj", {128, 344}},
    };
    ASSERT_EQ(layers[2].tensors.size(), block.size());
    for (size_t i = 0; i < block.size(); ++i) {
        EXPECT_EQ(layers[2].tensors[i].name,
                  std::string("model.layers.1.") + block[i].first + ".weight");
        EXPECT_EQ(layers[2].tensors[i].shape, block[i].second);
    }
    ASSERT_EQ(layers[3].tensors.size(), 2u);
    EXPECT_EQ(layers[3].tensors[0].name, "model.norm.weight");
    EXPECT_EQ(layers[3].tensors[1].name, "lm_head.weight");
    EXPECT_EQ(layers[3].tensors[1].shape, (Shape{259, 128}));
    EXPECT_TRUE(layers[3].borrowed_layers.empty());
}

// LOAD-2 at the level of the model: a tied weight is one tensor, owned once, borrowed by the head.
TEST(Llama, load_2_tied_weight_is_one_tensor) {
    json object = json::parse(version_4);
    const LlamaConfig tied = parsed(object);
    const std::vector<LayerSpec> layers = layers_of(tied);
    EXPECT_EQ(layers.back().borrowed_layers, (std::vector<uint32_t>{0}));
    int owners = 0;
    for (const LayerSpec& layer : layers) {
        for (const offload::TensorSpec& tensor : layer.tensors) {
            EXPECT_NE(tensor.name, "lm_head.weight");
            owners += tensor.name == "model.embed_tokens.weight" ? 1 : 0;
        }
    }
    EXPECT_EQ(owners, 1);
    object["tie_word_embeddings"] = false;
    EXPECT_EQ(parameter_count(parsed(object)) - parameter_count(tied), 259u * 128u);
}

TEST(Llama, HeadChunkFollowsTheVocabularyOnly) {
    LlamaConfig config = parsed(json::parse(version_5));
    const std::pair<int64_t, int64_t> rows[] = {{1, 512},     {259, 512},   {32768, 512},
                                                {32769, 256}, {49152, 256}, {128256, 128},
                                                {1 << 21, 16}};
    for (const auto& [vocabulary_size, tokens] : rows) {
        config.vocabulary_size = vocabulary_size;
        EXPECT_EQ(head_chunk_tokens(config), tokens) << vocabulary_size;
    }
}

}  // namespace
}  // namespace headrace::engine
