#include "engine/models/shape.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "engine/models/config_fields.h"
#include "engine/models/json.h"
#include "offload/check.h"

namespace headrace::engine {

using nlohmann::json;
using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

constexpr std::string_view known_types = "llama, mistral, qwen2, qwen3, gemma3_text, gemma3";

// What a config may leave out: transformers fills it in by model_type.
struct Defaults {
    std::string_view model_type;
    BlockExtras extras = {};
    bool tied = false;
    std::optional<int64_t> head_count = {};
    std::optional<int64_t> kv_head_count = {};
    std::optional<int64_t> head_dim = {};
    std::optional<int64_t> vocabulary_size = {};
};

// The values of transformers' MistralConfig, Qwen2Config, Qwen3Config, Gemma3TextConfig.
const Defaults* defaults_of(std::string_view model_type) {
    static const Defaults all[] = {
        {.model_type = "mistral", .kv_head_count = 8},
        {.model_type = "qwen2", .extras = {.query_key_value_biases = true}},
        {.model_type = "qwen3", .extras = {.head_norms = true}, .head_dim = 128},
        {.model_type = "gemma3_text",
         .extras = {.head_norms = true,
                    .output_norms = true,
                    .window_tokens = 4096,
                    .full_attention_period = 6},
         .tied = true,
         .head_count = 8,
         .kv_head_count = 4,
         .head_dim = 256,
         .vocabulary_size = 262'208}};
    for (const Defaults& one : all) {
        if (one.model_type == model_type) return &one;
    }
    return nullptr;
}

// Windows: a size, and which blocks have none, by a period or by a list of all blocks.
void read_windows(Fields& fields, LlamaConfig& config) {
    BlockExtras& extras = config.extras;
    const bool is_used = fields.boolean("use_sliding_window", true);
    extras.window_tokens = fields.integer("sliding_window", {.max = positions_max},
                                          std::max<int64_t>(1, extras.window_tokens));
    const bool is_given = fields.find("sliding_window") != nullptr;
    if (!is_used || (!is_given && extras.full_attention_period == 0)) extras.window_tokens = 0;
    if (extras.window_tokens == 0) return;
    extras.full_attention_period = fields.integer(
        "sliding_window_pattern", {.min = 0, .max = block_count_max}, extras.full_attention_period);
    const json* types = fields.find("layer_types");
    if (types == nullptr || !types->is_array()) return;
    extras.full_attention_period = 0;
    for (size_t block = types->size(); block-- > 0;) {
        if (types->at(block) != "full_attention") continue;
        extras.full_attention_period = static_cast<int64_t>(block) + 1;
    }
}

LlamaConfig read_sizes(Fields& fields, const Defaults& defaults) {
    LlamaConfig config;
    config.extras = defaults.extras;
    config.hidden_size = fields.integer("hidden_size", {});
    config.intermediate_size = fields.integer("intermediate_size", {});
    config.block_count = fields.integer("num_hidden_layers", {.max = block_count_max});
    config.vocabulary_size =
        fields.integer("vocab_size", {.max = vocabulary_max}, defaults.vocabulary_size);
    config.max_positions =
        fields.integer("max_position_embeddings", {.max = positions_max}, 131'072);
    config.tied = fields.boolean("tie_word_embeddings", defaults.tied);
    read_heads(fields, config);
    read_windows(fields, config);
    if (const json* quantized = fields.find("quantization_config"); quantized != nullptr) {
        fields.refuse("quantization_config", *quantized, "weights in bf16, fp16 or fp32");
    }
    return config;
}

// The object with what it leaves out, where the reading of heads needs it.
json filled(json object, const Defaults& defaults) {
    const auto fill = [&](const char* name, const std::optional<int64_t>& value) {
        if (value && (!object.contains(name) || object[name].is_null())) object[name] = *value;
    };
    fill("num_attention_heads", defaults.head_count);
    fill("num_key_value_heads", defaults.kv_head_count);
    fill("head_dim", defaults.head_dim);
    return object;
}

}  // namespace

Result<Shape> parse_shape(const std::string& text, const std::string& source) {
    CHECK(!source.empty());
    const Result<json> parsed = parse_json(text, source);
    if (!parsed.ok()) return wrap(parsed.error(), "reading the model config");
    const bool is_typed = parsed->is_object() && parsed->contains("model_type") &&
                          (*parsed)["model_type"].is_string();
    Shape shape{.config = {}, .model_type = is_typed ? (*parsed)["model_type"] : json("llama")};
    if (shape.model_type == "llama") {
        const Result<LlamaConfig> config = parse_llama_config(text, source);
        if (!config) return config.error();
        shape.config = *config;
        shape.trains = true;
        return shape;
    }
    const bool is_wrapped = shape.model_type == "gemma3";
    const Defaults* defaults = defaults_of(is_wrapped ? "gemma3_text" : shape.model_type);
    const auto failure = [&](const std::string& what) {
        return Error{ErrorCode::bad_data,
                     fmt::format("reading the model config {}: {}", source, what), ""};
    };
    if (defaults == nullptr) {
        return failure(fmt::format("model_type is {}, which cannot be planned; known are {}",
                                   shown((*parsed)["model_type"]), known_types));
    }
    if (is_wrapped && (!parsed->contains("text_config") || !(*parsed)["text_config"].is_object())) {
        return failure("text_config is missing, which holds the sizes of a gemma3");
    }
    const json object = filled(is_wrapped ? (*parsed)["text_config"] : *parsed, *defaults);
    Fields fields(object, source);
    shape.config = read_sizes(fields, *defaults);
    if (fields.error()) return *fields.error();
    CHECK_GT(parameter_count(shape.config), 0u);
    return shape;
}

LlamaConfig without_extras(const LlamaConfig& config) {
    LlamaConfig core = config;
    core.extras = {};
    return core;
}

}  // namespace headrace::engine
