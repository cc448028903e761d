// A config.json of a model of a few thousand parameters.
#pragma once

namespace headrace::engine {

inline constexpr const char* tiny_config = R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
  "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "dtype": "float32"})";

}  // namespace headrace::engine
