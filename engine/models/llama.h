// The Llama architecture as Headrace knows it: the fields of config.json that change the
// arithmetic, and the layers with their tensors. Layer 0 is the embedding, 1 to L the transformer
// blocks, L+1 the head (final norm and output projection; a tied head borrows the embedding).
// Anything in a config that this file does not know how to compute is refused by name, never
// ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/part.h"
#include "offload/result.h"

namespace headrace::engine {

enum class RopeType : uint8_t { plain, llama3 };

// Rotary position embedding: inverse frequencies theta^(-2i/head_dim), for llama3 rescaled by
// wavelength (Llama 3.1 model card; the same as transformers' _compute_llama3_parameters).
struct Rope {
    RopeType type = RopeType::plain;
    double theta = 10000.0;
    double factor = 1.0;
    double low_frequency_factor = 1.0;
    double high_frequency_factor = 4.0;
    int64_t original_max_positions = 8192;
    bool operator==(const Rope&) const = default;
};

// What other architectures add to a Llama's block or leave out of its attention. Counted by
// layers_of and effort_of, so that a plan can be made for them (engine/models/shape.h); nothing
// computes it, and parse_llama_config never sets it.
struct BlockExtras {
    bool query_key_value_biases = false;
    bool head_norms = false;            // of each head's query and key
    bool output_norms = false;          // of what attention and mlp give, before it is added
    int64_t window_tokens = 0;          // a token sees the last so many; 0: all before it
    int64_t full_attention_period = 0;  // every so manieth block sees all anyway; 0: none does
    bool operator==(const BlockExtras&) const = default;
};

struct LlamaConfig {
    int64_t hidden_size = 0;
    int64_t intermediate_size = 0;
    int64_t block_count = 0;
    int64_t head_count = 0;
    int64_t kv_head_count = 0;
    int64_t head_dim = 0;
    int64_t vocabulary_size = 0;
    int64_t max_positions = 0;
    double rms_norm_eps = 1e-6;
    bool tied = false;  // the head's weight is the embedding's
    Rope rope;
    BlockExtras extras = {};
    bool operator==(const LlamaConfig&) const = default;
};

// Reads the text of a config.json of transformers 4 or 5; `source` names the file in errors.
// Error (bad_data): not JSON, a missing or impossible number, or a setting that is not supported
// (another architecture, rope type, activation, biases, quantization), named with its value.
offload::Result<LlamaConfig> parse_llama_config(const std::string& text, const std::string& source);

// The number of heads, and their sizes, from the fields that all architectures share. Faults are
// kept in `fields`.
class Fields;
void read_heads(Fields& fields, LlamaConfig& config);

// Embedding, blocks, head: tensor names and shapes as in a Hugging Face checkpoint.
std::vector<offload::LayerSpec> layers_of(const LlamaConfig& config);

// Head chunk: tokens per chunk of head and cross entropy, a function of the model alone, since it
// changes bits of the head's gradient.
int64_t head_chunk_tokens(const LlamaConfig& config);

// Parameters, without padding; a tied head counts once.
uint64_t parameter_count(const LlamaConfig& config);

}  // namespace headrace::engine
