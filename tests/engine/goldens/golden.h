// Golden: one file of make_goldens.py, and the weights that both sides compute from a hash instead
// of storing them. For tests only; it trusts its own files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/models/llama.h"
#include "engine/torch/llama.h"

namespace headrace::engine::tests {

class Golden {
  public:
    // One of "tied", "untied_llama3", "wide_heads".
    explicit Golden(const std::string& name);

    const LlamaConfig& config() const { return config_; }
    // Any tensor of the file, int32 or fp32 or fp64, by name.
    template <typename T>
    std::vector<T> values(const std::string& name) const;
    bool holds(const std::string& name) const { return tensors_.contains(name); }

    // Micro-batch 0 or 1; lives as long as this object.
    MicroBatch batch(int index) const;
    static constexpr int batch_count = 2;

  private:
    struct Piece {
        std::vector<int64_t> shape;
        std::string bytes;
    };
    LlamaConfig config_;
    std::map<std::string, Piece> tensors_;
    std::vector<std::vector<int32_t>> inputs_;
    std::vector<std::vector<int32_t>> targets_;
};

inline const std::vector<std::string> golden_names = {"tied", "untied_llama3", "wide_heads"};

// The weight of element 0, 1, ... of a tensor, as weight() of make_goldens.py.
std::vector<float> golden_weight(const std::string& tensor_name, uint64_t element_count);

}  // namespace headrace::engine::tests
