// A recipe: a model folder whose weights are made where they are read, for who wants to measure a
// model of a size that the drive has no room for twice. In the place of weights it has
// random_weights.json, {"seed": 42}; the weights are those that `headrace random-model` writes with
// that seed, bit for bit. Only headrace reads it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/checkpoint/tensor_source.h"
#include "offload/result.h"

namespace headrace::engine {

inline constexpr std::string_view recipe_file = "random_weights.json";

// The text of the recipe file.
std::string recipe_of(uint64_t seed);

// The tensors of the folder's config.json, in bf16. Error (bad_data): of either file, by name.
offload::Result<std::unique_ptr<TensorSource>> open_recipe(const std::string& folder);

}  // namespace headrace::engine
