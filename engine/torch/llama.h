// LlamaCompute: the arithmetic of a Llama, layer by layer, on plain memory. No torch type crosses
// this header. Every function is a pure function of what it is given: no state survives a call, and
// equal inputs give equal bits, whatever the address, the calling thread or the order of calls.
//
// Shapes: tokens = rows * columns of the micro-batch; hidden states and their gradients are
// (tokens, hidden) in the compute dtype; `weights` is a layer's flat run (offload/part.h) in the
// compute dtype; `accumulator` is the same run in fp32.
//
// Gradients: computed in the compute dtype, then added to the accumulator in fp32. With
// `Accumulate::store` the accumulator is written whole, gaps between tensors as zeros (its old
// bytes are never read: they may be NaN); with `add` the tensors' elements are added to.
// Micro-batch 0 stores, the others add, ascending.
//
// A block's backward works from *kept*: what its forward has made of one micro-batch beside the
// output (engine/torch/block.h). Where forward was not asked to keep it, backward makes it again
// from the layer's input, with the same bits.
//
// Torch memory comes from the workspace (engine/torch/workspace.h) and is all back when a call
// returns. Threads: any one at a time; torch's own threads are set once per process by
// start_torch().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/models/llama.h"
#include "engine/torch/ops/kernels.h"
#include "offload/dtype.h"

namespace headrace::engine {

// One micro-batch. targets[t] is the token that position t must predict, or -100: not trained
// (labels already shifted by one; the last position of a row is -100). Rows are padded on the
// right.
//
// Samples may be packed: `sample_starts` then gives the column at which the sample of each token
// begins. A sample is computed as if it stood alone: it sees no other, its positions count from
// its start, and its last token trains nothing. What pads a row is a sample like any other.
struct MicroBatch {
    int64_t row_count = 0;
    int64_t column_count = 0;
    std::span<const int32_t> input_ids;  // (rows, columns)
    std::span<const int32_t> targets;    // (rows, columns)
    // (rows, columns), or empty: every row is one sample.
    std::span<const int32_t> sample_starts = {};

    int64_t token_count() const { return row_count * column_count; }
};

enum class Accumulate : uint8_t { store, add };

// What the head says of one micro-batch.
struct HeadResult {
    double loss_sum = 0;  // sum of -log p(target) over trained tokens, in token order
    int64_t trained_token_count = 0;
};

class LlamaCompute {
  public:
    // `kernels` changes bits: it is in the numerics record.
    LlamaCompute(const LlamaConfig& config, offload::Dtype dtype, Kernels kernels = Kernels::fused);
    ~LlamaCompute();
    LlamaCompute(LlamaCompute&&) noexcept;
    LlamaCompute& operator=(LlamaCompute&&) noexcept;

    struct EmbedForward {
        std::span<const std::byte> weights;
        std::span<std::byte> hidden_out;
    };
    void embed(const MicroBatch& batch, const EmbedForward& io) const;

    struct EmbedBackward {
        std::span<const std::byte> hidden_grad;
        std::span<float> accumulator;
        Accumulate accumulate = Accumulate::store;
    };
    // Adds gradient rows in token order, directly in fp32: no dense gradient is ever made.
    void embed_backward(const MicroBatch& batch, const EmbedBackward& io) const;

    struct BlockForward {
        std::span<const std::byte> weights;
        std::span<const std::byte> hidden_in;
        std::span<std::byte> hidden_out;
        std::span<std::byte> kept_out = {};  // kept_bytes(); empty: nothing is kept
    };
    // All blocks have the same shapes, so none is named.
    void block(const MicroBatch& batch, const BlockForward& io) const;

    struct BlockBackward {
        std::span<const std::byte> weights;
        std::span<const std::byte> hidden_in;
        std::span<const std::byte> grad_out;
        std::span<std::byte> grad_in;  // may be the same memory as grad_out
        std::span<float> accumulator;
        Accumulate accumulate = Accumulate::store;
        std::span<const std::byte> kept_in = {};  // of this micro-batch; empty: recompute
    };
    void block_backward(const MicroBatch& batch, const BlockBackward& io) const;

    // Bytes of what one block keeps of a micro-batch of this shape, whole pages; the memory begins
    // at a multiple of 64 bytes.
    uint64_t kept_bytes(int64_t row_count, int64_t column_count) const;

    struct Head {
        std::span<const std::byte> embedding_weights = {};  // tied: layer 0's run; else empty
        std::span<const std::byte> weights = {};            // the head's own run
        std::span<const std::byte> hidden_in = {};
        std::span<std::byte> grad_in = {};  // d loss / d hidden_in; other memory than hidden_in
        std::span<float> embedding_accumulator = {};  // tied: of this use; else empty
        std::span<float> accumulator = {};
        Accumulate accumulate = Accumulate::store;
        // d loss / d (-log p) of one token: 1 / trained tokens of the whole accumulated batch.
        float loss_scale = 1.0f;
    };
    // Final norm, logits, cross entropy and their backward, head_chunk_tokens at a time; the full
    // logits never exist, nor does a dense gradient of the output projection.
    HeadResult head(const MicroBatch& batch, const Head& io) const;

    // The same without gradients: only the first three spans of `io` are used.
    HeadResult head_loss(const MicroBatch& batch, const Head& io) const;

    // Logits of a few positions (at most head_chunk_tokens), (positions, vocabulary) in fp32:
    // for tests and for choosing a next token. Only the first three spans of `io` are used.
    void logits(const MicroBatch& batch, const Head& io, std::span<const int64_t> positions,
                std::span<float> logits_out) const;

    // Bytes of torch memory that any call above needs at most for a micro-batch of this shape, by
    // formula (stated in workspace_bytes.cc, checked against measurement by a test). An
    // upper bound, within 25% of the measured peak on real models.
    uint64_t workspace_bytes(int64_t row_count, int64_t column_count) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// Sets torch's threads once per process: compute_thread_count for kernels, one for inter-op.
void start_torch(int compute_thread_count);

// How matrices are multiplied here, for the numerics record: "bf16 onednn avx512_bf16", "fp32 mkl
// avx2, rounded": hosts without bf16 arithmetic multiply in fp32 and round the result once.
std::string matmul_description(offload::Dtype dtype);

// Version strings for the numerics record.
std::string torch_version();

}  // namespace headrace::engine
