// A model folder of random weights, of any size: what measuring and rehearsing a large model need,
// where nobody has it. Weights are normal with a deviation of 0.02, in bf16, norms are 1; an
// element is a function of seed, tensor and place alone, so two writings are equal byte for byte.
// Beside the weights lie config.json and a tokenizer of single bytes with a chat template, so that
// text can be trained and transformers opens the folder. Memory: a few MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "offload/part.h"
#include "offload/result.h"

namespace headrace::engine {

struct RandomCheckpointOptions {
    std::string config_text;    // a config.json of an architecture whose names are a Llama's
    std::string source;         // names it in errors
    std::string target_folder;  // as of CheckpointWriter
    int64_t block_count = 0;    // instead of num_hidden_layers; 0: as in the config
    uint64_t seed = 42;
    bool is_recipe = false;  // no weights: a recipe for them (engine/checkpoint/weight_recipe.h)
    std::function<int()> stop_signal = {};  // the number of the signal that asks to stop, or 0
    std::function<void(const std::string& line)> say = {};  // progress, for people
};

// Errors: bad_data (the config; an architecture that cannot be written), does_not_fit (the target's
// drive, with the numbers), failed (the target), stopped; the target is whole or as it was.
offload::Status write_random_checkpoint(const RandomCheckpointOptions& options);

// The bf16 bits of elements [first_element, first_element + size) of a tensor.
void random_elements(uint64_t seed, std::string_view tensor, uint64_t first_element,
                     std::span<uint16_t> elements);

// The same of a model's tensor: norms are 1.
void made_up_elements(uint64_t seed, const offload::TensorSpec& tensor, uint64_t first_element,
                      std::span<uint16_t> elements);

// tokenizer.json: a token for each byte, then <|begin|> and <|end|>.
std::string byte_tokenizer();
inline constexpr int64_t byte_tokenizer_size = 258;

}  // namespace headrace::engine
