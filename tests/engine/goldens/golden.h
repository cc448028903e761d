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

// A safetensors file of this folder, trusted.
struct GoldenFile {
    struct Piece {
        std::vector<int64_t> shape;
        std::string bytes;
    };
    std::map<std::string, std::string> metadata;
    std::map<std::string, Piece> tensors;

    // int32, fp32 or fp64.
    template <typename T>
    std::vector<T> values(const std::string& tensor) const;
};
GoldenFile read_golden_file(const std::string& name);

// The hash of a name that golden_weight() and the sketches of make_smollm2_gradients.py begin with,
// and what they make of it for one element.
uint64_t golden_hash(const std::string& tensor_name);
uint64_t golden_mix(uint64_t hash, uint64_t element);

class Golden {
  public:
    // One of "tied", "untied_llama3", "wide_heads".
    explicit Golden(const std::string& name);

    const LlamaConfig& config() const { return config_; }
    // Any tensor of the file, int32 or fp32 or fp64, by name.
    template <typename T>
    std::vector<T> values(const std::string& name) const {
        return file_.values<T>(name);
    }
    bool holds(const std::string& name) const { return file_.tensors.contains(name); }

    // Micro-batch 0 or 1; lives as long as this object.
    MicroBatch batch(int index) const;
    static constexpr int batch_count = 2;

  private:
    LlamaConfig config_;
    GoldenFile file_;
    std::vector<std::vector<int32_t>> inputs_;
    std::vector<std::vector<int32_t>> targets_;
};

inline const std::vector<std::string> golden_names = {"tied", "untied_llama3", "wide_heads"};

// The weight of element 0, 1, ... of a tensor, as weight() of make_goldens.py.
std::vector<float> golden_weight(const std::string& tensor_name, uint64_t element_count);

}  // namespace headrace::engine::tests
