// Checkpoint: the weights of a Hugging Face model folder, one `model.safetensors` or an index with
// its shards (or a recipe instead, weight_recipe.h), as one set of named tensors. Opening reads and
// checks headers only; elements are read where they are wanted, converted on the way through a
// buffer of at most 4 MiB, so that a model of any size is loaded with that much memory. Links are
// followed. Move-only; after open() it is read-only, and any threads may read at once. Files stay
// open, and their data is never cached here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/elements.h"
#include "engine/checkpoint/tensor_source.h"
#include "offload/part.h"
#include "offload/result.h"

namespace headrace::engine {

inline constexpr std::string_view weights_file = "model.safetensors";
inline constexpr std::string_view index_file = "model.safetensors.index.json";

class Checkpoint {
  public:
    // Error (bad_data), naming file, tensor and remedy: no weights in safetensors (with the command
    // that converts what is there), a shard that is missing or damaged, an index that names a file
    // outside the folder or a tensor that its shard does not hold, a tensor in two shards.
    static offload::Result<Checkpoint> open(const std::string& folder);

    // Every tensor of the model is there, with its shape and a dtype that can be read, and nothing
    // else is. Not errors: rotary_emb.inv_freq (old files store it), and lm_head.weight where the
    // head is tied (some files store it twice; the embedding's is the truth).
    // Error (bad_data): all that is missing, misshapen or unexpected, the first few by name.
    offload::Status check_against(std::span<const offload::LayerSpec> layers) const;

    // Null if there is none.
    const StoredTensor* find(std::string_view tensor) const;
    // Sorted.
    std::vector<std::string> names() const;

    // Fills `target` with the tensor's elements from first_element on. CHECKs that the tensor is
    // there and the range lies in it. Error: the drive's, or (bad_data) a dtype other than F32,
    // BF16 and F16.
    offload::Status read_elements(std::string_view tensor, uint64_t first_element,
                                  const ElementTarget& target) const;

    const std::string& folder() const { return folder_; }

  private:
    struct Place {
        size_t source = 0;
        size_t tensor = 0;
    };
    explicit Checkpoint(std::string folder) : folder_(std::move(folder)) {}
    offload::Status add_source(std::unique_ptr<TensorSource> source);
    offload::Status add_file(const std::string& file_name);
    offload::Status add_shards();

    std::string folder_;
    std::vector<std::unique_ptr<TensorSource>> sources_;
    std::map<std::string, Place, std::less<>> places_;
};

// Why a folder without weights in safetensors cannot be read, and the command that converts what
// it holds instead: PyTorch .bin files, a .gguf, Meta's .pth, an adapter.
offload::Error explain_missing_weights(const std::string& folder);

}  // namespace headrace::engine
