// A model's shape for a plan: sizes, tensors and arithmetic of more architectures than can be
// trained here. What a block has beside a Llama's (biases, norms of heads and of outputs, windows)
// stands in LlamaConfig::extras, which layers_of and effort_of count.
//
//   model_type              read                                              trains
//   llama                   by parse_llama_config, with all its refusals      yes
//   mistral                 a window where sliding_window is given            no
//   qwen2                   biases of queries, keys and values                no
//   qwen3                   norms of heads                                    no
//   gemma3_text, gemma3     norms of heads and of outputs, five windowed      no
//                           blocks of six; of gemma3 the text model alone
//
// Rope and activation functions of the others are not read: no plan depends on them.
#pragma once

#include <string>

#include "engine/models/llama.h"
#include "offload/result.h"

namespace headrace::engine {

struct Shape {
    LlamaConfig config;
    std::string model_type;
    bool trains = false;  // parse_llama_config reads it too
};

// The text of a config.json; `source` names the file in errors. Error (bad_data): not JSON, another
// model_type (the known ones are named), a missing or impossible number, quantized weights.
offload::Result<Shape> parse_shape(const std::string& text, const std::string& source);

// The shape without its extras: what the arithmetic here computes.
LlamaConfig without_extras(const LlamaConfig& config);

}  // namespace headrace::engine
