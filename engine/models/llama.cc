#include "engine/models/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/models/config_fields.h"
#include "engine/models/json.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::LayerSpec;
using offload::Result;
using offload::TensorSpec;

namespace {

using nlohmann::json;

// Refuses another model: what computes must be exactly LlamaForCausalLM.
void check_architecture(Fields& fields) {
    constexpr std::string_view supported = "LlamaForCausalLM (model_type \"llama\")";
    const json* architectures = fields.find("architectures");
    const json* model_type = fields.find("model_type");
    if (architectures == nullptr && model_type == nullptr) {
        fields.fail(
            "neither architectures nor model_type is given, so this is not the config of a "
            "model; supported: LlamaForCausalLM (model_type \"llama\")");
    }
    if (architectures != nullptr && *architectures != json::array({"LlamaForCausalLM"})) {
        fields.refuse("architectures", *architectures, supported);
    }
    if (model_type != nullptr && *model_type != "llama") {
        fields.refuse("model_type", *model_type, supported);
    }
}

// Refuses settings that would change the arithmetic in a way that is not computed here.
void check_settings(Fields& fields) {
    struct Only {
        const char* name;
        json only;  // the one value that is computed; absent and null mean it too
    };
    static const Only settings[] = {{"attention_bias", false},   {"mlp_bias", false},
                                    {"attention_dropout", 0.0},  {"pretraining_tp", 1},
                                    {"rope_interleaved", false}, {"is_encoder_decoder", false},
                                    {"hidden_dropout", 0.0},     {"add_cross_attention", false}};
    for (const Only& setting : settings) {
        const json* value = fields.find(setting.name);
        if (value != nullptr && *value != setting.only) {
            fields.refuse(setting.name, *value, setting.only.dump());
        }
    }
    if (const json* act = fields.find("hidden_act"); act != nullptr) {
        if (*act != "silu" && *act != "swish") fields.refuse("hidden_act", *act, "\"silu\"");
    }
    if (const json* quantization = fields.find("quantization_config"); quantization != nullptr) {
        fields.refuse("quantization_config", *quantization,
                      "weights in bf16, fp16 or fp32 (save the model dequantized)");
    }
    if (const json* window = fields.find("sliding_window"); window != nullptr) {
        if (fields.boolean("use_sliding_window", true)) {
            fields.refuse("sliding_window", *window, "null (full attention)");
        }
    }
    if (const json* types = fields.find("layer_types"); types != nullptr) {
        bool is_full = types->is_array();
        for (const json& type : *types) is_full = is_full && type == "full_attention";
        if (!is_full) fields.refuse("layer_types", *types, "\"full_attention\" everywhere");
    }
    if (const json* text = fields.find("text_config"); text != nullptr) {
        fields.refuse("text_config", *text, "a text model, whose settings stand at the top level");
    }
}

// rope_parameters (version 5) or rope_scaling (version 4); null if neither is given.
const json* find_rope(Fields& fields) {
    const json* parameters = fields.find("rope_parameters");
    const json* scaling = fields.find("rope_scaling");
    if (parameters != nullptr && scaling != nullptr && *parameters != *scaling) {
        fields.fail(fmt::format(
            "rope_parameters is {} and rope_scaling is {}: both are given and differ; remove one",
            shown(*parameters), shown(*scaling)));
    }
    const json* rope = parameters != nullptr ? parameters : scaling;
    const char* name = parameters != nullptr ? "rope_parameters" : "rope_scaling";
    if (rope == nullptr) return nullptr;
    if (!rope->is_object()) {
        fields.refuse(name, *rope, "an object");
        return nullptr;
    }
    for (const auto& [key, value] : rope->items()) {
        if (value.is_object()) {
            fields.refuse(name, *rope, "the same rope for all layers");
            return nullptr;
        }
    }
    return rope;
}

Rope read_rope(Fields& fields, int64_t max_positions) {
    CHECK_GT(max_positions, 0);
    static const json none = json::object();
    const json* found = find_rope(fields);
    const json& rope = found != nullptr ? *found : none;
    auto first_of = [&](const char* name, const char* old_name) {
        const json* value = Fields::find_in(rope, name);
        if (value == nullptr) value = fields.find(name);
        return value != nullptr || old_name == nullptr ? value : fields.find(old_name);
    };
    Rope result;
    result.theta =
        fields.positive_of(first_of("rope_theta", "rotary_emb_base"), "rope_theta", 10000.0);
    if (const json* partial = first_of("partial_rotary_factor", "rotary_pct"); partial != nullptr) {
        if (*partial != 1.0) fields.refuse("partial_rotary_factor", *partial, "1.0");
    }
    const json* type = Fields::find_in(rope, "rope_type");
    if (type == nullptr) type = Fields::find_in(rope, "type");
    if (type == nullptr || *type == "default") return result;
    if (*type != "llama3") {
        fields.refuse("rope_type", *type, "\"default\", \"llama3\"");
        return result;
    }
    result.type = RopeType::llama3;
    auto number = [&](const char* name) {
        return fields.positive_of(Fields::find_in(rope, name), name, {});
    };
    result.factor = number("factor");
    result.low_frequency_factor = number("low_freq_factor");
    result.high_frequency_factor = number("high_freq_factor");
    constexpr const char* original = "original_max_position_embeddings";
    result.original_max_positions =
        fields.integer_of(first_of(original, nullptr), original, {1, positions_max}, max_positions);
    if (result.factor < 1.0) {
        fields.fail(fmt::format("rope factor is {}, but must be at least 1", result.factor));
    }
    if (result.low_frequency_factor >= result.high_frequency_factor) {
        fields.fail(
            fmt::format("low_freq_factor is {} and high_freq_factor is {}, but the low one "
                        "must be smaller",
                        result.low_frequency_factor, result.high_frequency_factor));
    }
    return result;
}

TensorSpec tensor(std::string name, std::vector<int64_t> shape) {
    return TensorSpec{.name = std::move(name), .shape = std::move(shape)};
}

// The tensors that some architectures add; behind those of a Llama, in a plan nobody minds.
void add_extras(const LlamaConfig& config, const std::string& prefix, LayerSpec& layer) {
    const BlockExtras& extras = config.extras;
    if (extras.query_key_value_biases) {
        const int64_t query = config.head_count * config.head_dim;
        const int64_t key = config.kv_head_count * config.head_dim;
        layer.tensors.push_back(tensor(prefix + "self_attn.q_proj.bias", {query}));
        layer.tensors.push_back(tensor(prefix + "self_attn.k_proj.bias", {key}));
        layer.tensors.push_back(tensor(prefix + "self_attn.v_proj.bias", {key}));
    }
    if (extras.head_norms) {
        layer.tensors.push_back(tensor(prefix + "self_attn.q_norm.weight", {config.head_dim}));
        layer.tensors.push_back(tensor(prefix + "self_attn.k_norm.weight", {config.head_dim}));
    }
    if (extras.output_norms) {
        for (const char* name : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
            layer.tensors.push_back(tensor(prefix + name + ".weight", {config.hidden_size}));
        }
    }
}

// One transformer block; the order of its tensors is the order of their first use in forward.
LayerSpec block_layer(const LlamaConfig& config, int64_t index) {
    CHECK_GE(index, 0);
    CHECK_LT(index, config.block_count);
    const int64_t hidden = config.hidden_size;
    const int64_t inner = config.intermediate_size;
    const int64_t query = config.head_count * config.head_dim;
    const int64_t key = config.kv_head_count * config.head_dim;
    const std::string prefix = fmt::format("model.layers.{}.", index);
    LayerSpec layer;
    layer.name = fmt::format("layers.{}", index);
    layer.tensors = {
        tensor(prefix + "input_layernorm.weight", {hidden}),
        tensor(prefix + "self_attn.q_proj.weight", {query, hidden}),
        tensor(prefix + "self_attn.k_proj.weight", {key, hidden}),
        tensor(prefix + "self_attn.v_proj.weight", {key, hidden}),
        tensor(prefix + "self_attn.o_proj.weight", {hidden, query}),
        tensor(prefix + "post_attention_layernorm.weight", {hidden}),
        tensor(prefix + "mlp.gate_proj.weight", {inner, hidden}),
        tensor(prefix + "mlp.up_proj.weight", {inner, hidden}),
        tensor(prefix + "mlp.down_proj.weight", {hidden, inner}),
    };
    add_extras(config, prefix, layer);
    return layer;
}

}  // namespace

// Heads: head_dim may be given, and then differ from hidden_size / num_attention_heads.
void read_heads(Fields& fields, LlamaConfig& config) {
    CHECK_GT(config.hidden_size, 0);
    config.head_count = fields.integer("num_attention_heads", {});
    config.kv_head_count = fields.integer("num_key_value_heads", {}, config.head_count);
    if (config.head_count % config.kv_head_count != 0) {
        fields.fail(
            fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                        config.head_count, config.kv_head_count));
    }
    if (fields.find("head_dim") == nullptr && config.hidden_size % config.head_count != 0) {
        fields.fail(
            fmt::format("hidden_size {} is not a multiple of num_attention_heads {}, and "
                        "head_dim is not given",
                        config.hidden_size, config.head_count));
    }
    config.head_dim = fields.integer("head_dim", {.min = 2},
                                     std::max<int64_t>(2, config.hidden_size / config.head_count));
    if (config.head_dim % 2 != 0) {
        fields.fail(
            fmt::format("head_dim is {}, but rope turns pairs: it must be even", config.head_dim));
    }
    if (config.head_count > side_max / config.head_dim) {
        fields.fail(fmt::format("num_attention_heads {} times head_dim {} is more than {}",
                                config.head_count, config.head_dim, side_max));
    }
}

Result<LlamaConfig> parse_llama_config(const std::string& text, const std::string& source) {
    CHECK(!source.empty());
    const Result<json> parsed = parse_json(text, source);
    if (!parsed.ok()) return wrap(parsed.error(), "reading the model config");
    const json& object = *parsed;
    if (!object.is_object()) {
        return Error{ErrorCode::bad_data,
                     fmt::format("reading the model config {}: it is not a JSON object but {}",
                                 source, shown(object)),
                     ""};
    }
    Fields fields(object, source);
    check_architecture(fields);
    check_settings(fields);
    LlamaConfig config;
    config.hidden_size = fields.integer("hidden_size", {});
    config.intermediate_size = fields.integer("intermediate_size", {});
    config.block_count = fields.integer("num_hidden_layers", {.max = block_count_max});
    config.vocabulary_size = fields.integer("vocab_size", {.max = vocabulary_max});
    config.max_positions =
        fields.integer("max_position_embeddings", {.min = 2, .max = positions_max}, 2048);
    config.rms_norm_eps = fields.positive_of(fields.find("rms_norm_eps"), "rms_norm_eps", 1e-6);
    config.tied = fields.boolean("tie_word_embeddings", false);
    read_heads(fields, config);
    config.rope = read_rope(fields, config.max_positions);
    if (fields.error()) return *fields.error();
    CHECK_GT(parameter_count(config), 0u);
    return config;
}

std::vector<LayerSpec> layers_of(const LlamaConfig& config) {
    CHECK_GT(config.hidden_size, 0);
    CHECK_GT(config.block_count, 0);
    CHECK_GT(config.vocabulary_size, 0);
    std::vector<LayerSpec> layers;
    layers.reserve(static_cast<size_t>(config.block_count) + 2);
    LayerSpec embedding;
    embedding.name = "embedding";
    embedding.tensors = {
        tensor("model.embed_tokens.weight", {config.vocabulary_size, config.hidden_size})};
    layers.push_back(std::move(embedding));
    for (int64_t index = 0; index < config.block_count; ++index) {
        layers.push_back(block_layer(config, index));
    }
    LayerSpec head;
    head.name = "head";
    head.tensors = {tensor("model.norm.weight", {config.hidden_size})};
    if (config.tied) {
        head.borrowed_layers = {0};
    } else {
        head.tensors.push_back(
            tensor("lm_head.weight", {config.vocabulary_size, config.hidden_size}));
    }
    layers.push_back(std::move(head));
    return layers;
}

int64_t head_chunk_tokens(const LlamaConfig& config) {
    CHECK_GT(config.vocabulary_size, 0);
    // Logits in fp32, which their gradient replaces: 4 bytes for each token and word. The larger
    // the chunk, the seldomer the projection's accumulator passes through the caches.
    constexpr int64_t logit_bytes = 4;
    constexpr int64_t chunk_bytes_max = int64_t{64} << 20;
    constexpr int64_t chunk_tokens_min = 16;
    constexpr int64_t chunk_tokens_max = 512;
    int64_t tokens = chunk_tokens_max;
    while (tokens > chunk_tokens_min &&
           tokens * config.vocabulary_size * logit_bytes > chunk_bytes_max) {
        tokens /= 2;
    }
    CHECK_GE(tokens, chunk_tokens_min);
    return tokens;
}

uint64_t parameter_count(const LlamaConfig& config) {
    uint64_t count = 0;
    for (const LayerSpec& layer : layers_of(config)) {
        for (const TensorSpec& one : layer.tensors) count += offload::element_count_of(one);
    }
    return count;
}

}  // namespace headrace::engine
