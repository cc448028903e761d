// Rotary position embedding, rotate-half: pairs (i, i + head_dim/2) of a head are turned by
// position * inverse_frequency[i].
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <span>
#include <vector>

#include "engine/models/llama.h"
#include "engine/torch/ops/attention_shape.h"
#include "engine/torch/ops/kernels.h"

namespace headrace::engine {

// head_dim / 2 inverse frequencies, computed in fp32 as transformers does, llama3 rescaling
// included.
std::vector<float> inverse_frequencies(const Rope& rope, int64_t head_dim);

struct RopeTable {
    at::Tensor cosine;  // (columns, 1, head_dim / 2), fp32
    at::Tensor sine;    // the same
};

// Angles of positions 0 .. column_count - 1 in fp32; cosines and sines are rounded to `dtype`, as
// transformers rounds them, and kept in fp32.
RopeTable rope_table(const std::vector<float>& frequencies, int64_t column_count,
                     at::ScalarType dtype);

// The turn and its inverse, which is its gradient.
enum class Turn : uint8_t { forward, back };

// x: (rows, columns, heads, head_dim), any float dtype -> the same shape in fp32, contiguous.
at::Tensor rotate(const at::Tensor& x, const RopeTable& table, Turn turn);

// Turns x: (tokens, heads * head_dim), contiguous, any float dtype, in place: in fp32, rounded
// once. Token t stands at column t % columns, the table's, and at the position counted from the
// start of its sample. No graph is made.
void rope_rotate_(at::Tensor& x, const RopeTable& table, Turn turn, Kernels choice = Kernels::fused,
                  SampleStarts starts = {});

}  // namespace headrace::engine
