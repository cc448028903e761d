#include "engine/checkpoint/weight_recipe.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/checkpoint/file.h"
#include "engine/checkpoint/random_checkpoint.h"
#include "engine/models/json.h"
#include "engine/models/shape.h"
#include "offload/check.h"
#include "offload/part.h"
#include "offload/units.h"

namespace headrace::engine {

using nlohmann::json;
using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

constexpr uint64_t text_bytes_max = offload::mib;

class MadeUpTensors final : public TensorSource {
  public:
    MadeUpTensors(std::string path, uint64_t seed, const LlamaConfig& model)
        : path_(std::move(path)), seed_(seed) {
        for (const offload::LayerSpec& layer : layers_of(model)) {
            for (const offload::TensorSpec& tensor : layer.tensors) {
                const uint64_t count = element_count_of(tensor);
                tensors_.push_back({.name = tensor.name,
                                    .dtype_name = "BF16",
                                    .dtype = offload::Dtype::bf16,
                                    .shape = tensor.shape,
                                    .element_count = count,
                                    .offset_bytes = 0,
                                    .size_bytes = bytes_of(offload::Dtype::bf16, count)});
            }
        }
        CHECK(!tensors_.empty());
    }

    const std::vector<StoredTensor>& tensors() const override { return tensors_; }
    const std::string& path() const override { return path_; }

    offload::Status read(const StoredTensor& tensor, uint64_t offset_bytes,
                         std::span<std::byte> target) const override {
        CHECK_EQ(offset_bytes % sizeof(uint16_t), 0u);
        CHECK_EQ(target.size() % sizeof(uint16_t), 0u);
        CHECK_LE(offset_bytes, tensor.size_bytes);
        CHECK_LE(target.size(), tensor.size_bytes - offset_bytes);
        CHECK_EQ(reinterpret_cast<uintptr_t>(target.data()) % alignof(uint16_t), 0u);
        made_up_elements(seed_, {.name = tensor.name, .shape = tensor.shape},
                         offset_bytes / sizeof(uint16_t),
                         {reinterpret_cast<uint16_t*>(target.data()), target.size() / 2});
        return {};
    }

  private:
    const std::string path_;
    const uint64_t seed_;
    std::vector<StoredTensor> tensors_;
};

}  // namespace

std::string recipe_of(uint64_t seed) {
    return json{{"seed", seed}}.dump() + "\n";
}

Result<std::unique_ptr<TensorSource>> open_recipe(const std::string& folder) {
    CHECK(!folder.empty());
    const std::string path = std::filesystem::path(folder) / recipe_file;
    const Result<std::string> text = read_text(path, text_bytes_max);
    if (!text) return text.error();
    const Result<json> recipe = parse_json(*text, path);
    if (!recipe) return recipe.error();
    const bool has_seed = recipe->is_object() && recipe->size() == 1 && recipe->contains("seed") &&
                          (*recipe)["seed"].is_number_unsigned();
    if (!has_seed) {
        return Error{ErrorCode::bad_data, fmt::format("reading the recipe {}", path),
                     R"(it must be {"seed": N} with N from 0 on, as random-model --recipe writes)"};
    }
    const std::string config_path = std::filesystem::path(folder) / "config.json";
    const Result<std::string> config_text = read_text(config_path, text_bytes_max);
    if (!config_text) return config_text.error();
    const Result<Shape> shape = parse_shape(*config_text, config_path);
    if (!shape) return shape.error();
    return std::unique_ptr<TensorSource>(
        std::make_unique<MadeUpTensors>(path, (*recipe)["seed"].get<uint64_t>(), shape->config));
}

}  // namespace headrace::engine
