// A transformer block's forward and backward as plain functions: no graph is recorded, every tensor
// is named, and what stays alive is what the code says.
//
// *kept*: everything that backward needs of one micro-batch beside the block's input. Norms'
// outputs and SwiGLU's product are cheap and made again. Backward always works from kept: where
// forward did not keep it, it is made again by the same function, so kept and recomputed give the
// same bits.
//
// *storage* is the dtype of weights, hidden states and kept: the compute dtype. *work* is the dtype
// of what matrices are multiplied in and of everything between two products (ops/matmul.h): fp32
// where the CPU has no products of storage, else storage itself.
//
// Any one thread at a time. Memory comes from torch's allocator and is back when a call returns.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <span>

#include "engine/torch/block_shape.h"
#include "engine/torch/gradient.h"
#include "engine/torch/ops/attention.h"
#include "engine/torch/ops/rope.h"

namespace headrace::engine {

// (outputs, inputs) as in checkpoints, norms (hidden); storage.
struct BlockWeights {
    at::Tensor input_norm, query, key, value, output, post_norm, gate, up, down;
};

// Where the gradients of the weights of the same names go.
struct BlockSinks {
    GradientSink input_norm, query, key, value, output, post_norm, gate, up, down;
};

struct BlockKept {
    at::Tensor query;     // (tokens, heads * head_dim), rotated
    at::Tensor key;       // (tokens, kv_heads * head_dim), rotated
    at::Tensor value;     // the same
    at::Tensor attended;  // (tokens, heads * head_dim)
    at::Tensor log_sum;   // (rows, heads, columns), fp32
    at::Tensor middle;    // (tokens, hidden): the block's input plus attention's output
    at::Tensor gate;      // (tokens, intermediate)
    at::Tensor up;        // the same
};

// A kept whose tensors lie in `bytes`, of kept_bytes_of(shape) at a multiple of 64 bytes.
BlockKept kept_at(const BlockShape& shape, std::span<std::byte> bytes);

// A kept of torch's memory.
BlockKept make_kept(const BlockShape& shape);

struct Block {
    BlockShape shape;
    BlockWeights weights;
    RopeTable rope;
    double epsilon = 0;
    Kernels kernels = Kernels::fused;

    // Fills `kept` for x: (tokens, hidden), storage.
    void keep(const at::Tensor& x, const BlockKept& kept) const;

    // y, (tokens, hidden) in storage, from what keep() filled.
    void finish(const BlockKept& kept, const at::Tensor& y) const;

    // dx = d loss / d x for dy = d loss / d y, both (tokens, hidden) in storage; they may be the
    // same memory. Without `kept` (its tensors undefined) keep() fills one in torch's memory, which
    // is given back as it is used up.
    void backward(const at::Tensor& x, BlockKept kept, const at::Tensor& dy, const at::Tensor& dx,
                  const BlockSinks& sinks) const;

  private:
    // `scratch` is of the products (ops/matmul.h).
    void keep(const at::Tensor& x, const BlockKept& kept, const at::Tensor& scratch) const;
    // Both replace d_hidden, (tokens, hidden) in work: d loss / d the half's output becomes
    // d loss / d its input.
    void mlp_backward(BlockKept& kept, const at::Tensor& d_hidden, const BlockSinks& sinks,
                      const at::Tensor& scratch) const;
    void attention_backward(const at::Tensor& x, BlockKept& kept, const at::Tensor& d_hidden,
                            const BlockSinks& sinks, const at::Tensor& scratch) const;
};

}  // namespace headrace::engine
