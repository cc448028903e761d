// Layout: how the parameters of a model become parts.
//
// A layer's tensors are laid one after another into one flat run of elements, each beginning at a
// multiple of 32 elements (64 bytes in bf16); the run is padded to a multiple of 2048. The layout
// is a function of the model alone. A part is a piece of one layer's run: at most part_bytes
// (counted in the compute dtype), a multiple of 2048 elements. Parts may cut a tensor anywhere; a
// layer's parts always lie side by side where it computes, so that its tensors are whole there.
//
// Everything that must not depend on how the parts are cut (the gradient norm) is counted in blocks
// of 2048 elements of the flat run, which no part boundary ever crosses.
//
//   layer 1:  |q      |k  |v  |o      |pad|     flat elements, tensors at multiples of 32
//   parts:    |part 3     |part 4     |p 5|     each a multiple of 2048 elements
//
// A layer owns the parts of its tensors and may use parts of another one (a tied head uses the
// embedding's). Values only; no thread, no memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "offload/dtype.h"
#include "offload/result.h"

namespace headrace::offload {

inline constexpr uint64_t tensor_alignment_elements = 32;
inline constexpr uint64_t block_elements = 2048;

// What a model tells about one tensor and one layer.
struct TensorSpec {
    std::string name;            // the Hugging Face name
    std::vector<int64_t> shape;  // row-major
    bool operator==(const TensorSpec&) const = default;
};

struct LayerSpec {
    std::string name;                       // "embedding", "layers.3", "head"
    std::vector<TensorSpec> tensors;        // those it owns, in flat order
    std::vector<uint32_t> borrowed_layers;  // layers whose tensors it uses too (tied head: {0})
    bool operator==(const LayerSpec&) const = default;
};

// Where a tensor lies in its layer's flat run.
struct TensorExtent {
    uint64_t first_element = 0;
    uint64_t element_count = 0;
    bool operator==(const TensorExtent&) const = default;
};

struct LayerLayout {
    std::vector<TensorExtent> tensors;  // as LayerSpec::tensors
    uint64_t element_count = 0;         // padded to block_elements
    uint32_t first_part = 0;
    uint32_t part_count = 0;
    bool operator==(const LayerLayout&) const = default;
};

struct Part {
    uint32_t layer = 0;          // its owner
    uint64_t first_element = 0;  // in the owner's flat run
    uint64_t element_count = 0;  // a multiple of block_elements
    bool operator==(const Part&) const = default;
};

struct Layout {
    std::vector<LayerSpec> specs;
    std::vector<LayerLayout> layers;
    std::vector<Part> parts;  // ascending by layer, then by first_element
    bool operator==(const Layout&) const = default;
};

// Cuts. part_element_count_max is a positive multiple of block_elements (CHECK).
// Error (does_not_fit): a model without a tensor.
Result<Layout> make_layout(std::vector<LayerSpec> specs, uint64_t part_element_count_max);

// The elements of a tensor, the product of its shape (1 for a scalar, 0 if any side is 0).
uint64_t element_count_of(const TensorSpec& tensor);

// What one part shares with the tensors of its layer: `tensor` indexes LayerSpec::tensors.
struct TensorPiece {
    uint32_t tensor = 0;
    uint64_t first_in_tensor = 0;  // element of the tensor
    uint64_t first_in_part = 0;    // element of the part
    uint64_t element_count = 0;
    bool operator==(const TensorPiece&) const = default;
};
std::vector<TensorPiece> pieces_of(const Layout& layout, uint32_t part);

// All parts a layer computes with, in the order it expects them: borrowed first, then its own.
std::vector<uint32_t> parts_used(const Layout& layout, uint32_t layer);

// First broken invariant, or null.
const char* find_fault(const Layout& layout);

}  // namespace headrace::offload
