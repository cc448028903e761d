#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/torch/block.h"
#include "engine/torch/llama.h"
#include "engine/torch/ops/output.h"
#include "engine/torch/scalar_type.h"
#include "engine/torch/workspace_bytes.h"
#include "kernels/host/row_kernels.h"
#include "offload/part.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Dtype;
using offload::LayerLayout;
using offload::LayerSpec;
using offload::TensorExtent;

namespace {

// A block's tensors, in the order of layers_of().
enum BlockTensor : size_t {
    input_norm,
    query,
    key,
    value,
    output,
    post_norm,
    gate,
    up,
    down,
    block_tensor_count
};
constexpr std::array<const char*, block_tensor_count> block_tensor_names = {
    "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
    "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

// The head's: the projection is there only if untied.
enum HeadTensor : size_t { final_norm, projection };

// The last chunk of a head is filled up to a multiple of this many rows: the kernels under torch
// keep code for every shape they have met.
constexpr size_t chunk_row_multiple = 16;

// One layer: what it holds and where that lies in its run.
struct LayerShape {
    LayerSpec spec;
    LayerLayout layout;

    std::span<float> piece(std::span<float> run, size_t tensor) const {
        const TensorExtent& extent = layout.tensors.at(tensor);
        return run.subspan(extent.first_element, extent.element_count);
    }

    // What lies between the tensors is written too when a run is stored whole.
    void zero_gaps(std::span<float> run) const {
        CHECK_EQ(run.size(), layout.element_count);
        uint64_t done = 0;
        for (const TensorExtent& extent : layout.tensors) {
            CHECK_GE(extent.first_element, done);
            std::fill(run.begin() + done, run.begin() + extent.first_element, 0.0f);
            done = extent.first_element + extent.element_count;
        }
        std::fill(run.begin() + done, run.end(), 0.0f);
    }
};

}  // namespace

struct LlamaCompute::State {
    LlamaConfig config;
    Dtype dtype = Dtype::fp32;
    at::ScalarType scalar_type = at::kFloat;
    Kernels kernels = Kernels::fused;
    std::vector<float> frequencies;
    LayerShape embedding;
    LayerShape block;
    LayerShape head;

    at::Tensor wrap(std::span<const std::byte> bytes, at::IntArrayRef shape) const {
        const uint64_t element_count = static_cast<uint64_t>(c10::multiply_integers(shape));
        CHECK_EQ(bytes.size(), offload::bytes_of(dtype, element_count));
        return at::from_blob(const_cast<std::byte*>(bytes.data()), shape,
                             at::TensorOptions().dtype(scalar_type));
    }

    at::Tensor hidden(std::span<const std::byte> bytes, const MicroBatch& batch) const {
        return wrap(bytes, {batch.token_count(), config.hidden_size});
    }

    at::Tensor weight(const LayerShape& layer, std::span<const std::byte> run,
                      size_t tensor) const {
        CHECK_EQ(run.size(), offload::bytes_of(dtype, layer.layout.element_count));
        const TensorExtent& extent = layer.layout.tensors.at(tensor);
        return wrap(run.subspan(offload::bytes_of(dtype, extent.first_element),
                                offload::bytes_of(dtype, extent.element_count)),
                    layer.spec.tensors.at(tensor).shape);
    }

    BlockShape block_shape(int64_t row_count, int64_t column_count) const {
        return block_shape_of(config, dtype, row_count, column_count);
    }

    Block make_block(std::span<const std::byte> run, const MicroBatch& batch) const {
        const auto weight_of = [&](size_t tensor) { return weight(block, run, tensor); };
        BlockShape shape = block_shape(batch.row_count, batch.column_count);
        shape.attention.starts = batch.sample_starts;
        return {.shape = shape,
                .weights = {.input_norm = weight_of(input_norm),
                            .query = weight_of(query),
                            .key = weight_of(key),
                            .value = weight_of(value),
                            .output = weight_of(output),
                            .post_norm = weight_of(post_norm),
                            .gate = weight_of(gate),
                            .up = weight_of(up),
                            .down = weight_of(down)},
                .rope = rope_table(frequencies, batch.column_count, scalar_type),
                .epsilon = config.rms_norm_eps,
                .kernels = kernels};
    }

    BlockSinks block_sinks(std::span<float> run, Accumulate mode) const {
        const auto sink = [&](size_t tensor) {
            return GradientSink(block.piece(run, tensor), mode, dtype);
        };
        return {.input_norm = sink(input_norm),
                .query = sink(query),
                .key = sink(key),
                .value = sink(value),
                .output = sink(output),
                .post_norm = sink(post_norm),
                .gate = sink(gate),
                .up = sink(up),
                .down = sink(down)};
    }

    OutputWeights output_weights(const Head& io) const {
        const bool tied = config.tied;
        CHECK_EQ(io.embedding_weights.empty(), !tied);
        return {.norm = weight(head, io.weights, final_norm),
                .projection = tied ? weight(embedding, io.embedding_weights, 0)
                                   : weight(head, io.weights, projection),
                .epsilon = config.rms_norm_eps,
                .kernels = kernels};
    }

    OutputSinks output_sinks(const Head& io) const {
        const std::span<float> target = config.tied ? embedding.piece(io.embedding_accumulator, 0)
                                                    : head.piece(io.accumulator, projection);
        return {.norm = {head.piece(io.accumulator, final_norm), Accumulate::add, dtype},
                .projection = {target, Accumulate::add, dtype}};
    }

    HeadResult head_pass(const MicroBatch& batch, const Head& io, bool with_gradients) const;
};

namespace {

LayerShape shape_of(const offload::Layout& layout, size_t layer) {
    return {layout.specs.at(layer), layout.layers.at(layer)};
}

// Packed samples follow one another, and the last token of each predicts nothing.
void check_samples(const MicroBatch& batch) {
    CHECK_EQ(static_cast<int64_t>(batch.sample_starts.size()), batch.token_count());
    for (int64_t token = 0; token < batch.token_count(); ++token) {
        const auto index = static_cast<size_t>(token);
        const int64_t column = token % batch.column_count;
        const int64_t start = batch.sample_starts[index];
        const bool is_first = start == column;
        CHECK(is_first || (column > 0 && start == batch.sample_starts[index - 1]));
        const bool is_last =
            column + 1 == batch.column_count || batch.sample_starts[index + 1] != start;
        if (is_last) CHECK_EQ(batch.targets[index], -100);
    }
}

void check_batch(const MicroBatch& batch) {
    CHECK_GT(batch.row_count, 0);
    CHECK_GT(batch.column_count, 0);
    CHECK_EQ(static_cast<int64_t>(batch.input_ids.size()), batch.token_count());
    CHECK_EQ(static_cast<int64_t>(batch.targets.size()), batch.token_count());
    if (!batch.sample_starts.empty()) check_samples(batch);
}

// Positions that have a target, ascending.
std::vector<int64_t> trained_positions(const MicroBatch& batch) {
    std::vector<int64_t> positions;
    for (size_t token = 0; token < batch.targets.size(); ++token) {
        if (batch.targets[token] != -100) positions.push_back(static_cast<int64_t>(token));
    }
    return positions;
}

// A chunk of trained positions, filled up with copies of the last one that count for nothing.
struct HeadChunk {
    HeadChunk(const MicroBatch& batch, std::span<const int64_t> trained, float loss_scale) {
        CHECK(!trained.empty());
        const size_t row_count = offload::align_up(trained.size(), chunk_row_multiple);
        positions.assign(trained.begin(), trained.end());
        positions.resize(row_count, trained.back());
        scales.assign(trained.size(), loss_scale);
        scales.resize(row_count, 0.0f);
        losses.resize(row_count);
        for (const int64_t position : positions) {
            targets.push_back(batch.targets[static_cast<size_t>(position)]);
        }
    }

    OutputTargets asked() { return {.tokens = targets, .scales = scales, .losses = losses}; }

    std::vector<int64_t> positions;
    std::vector<int32_t> targets;
    std::vector<float> scales;
    std::vector<double> losses;
};

// x: (tokens, hidden) -> (positions, hidden)
at::Tensor take_rows(const at::Tensor& x, std::span<const int64_t> positions) {
    CHECK(!positions.empty());
    const at::Tensor indices =
        at::from_blob(const_cast<int64_t*>(positions.data()),
                      at::IntArrayRef{static_cast<int64_t>(positions.size())},
                      at::TensorOptions().dtype(at::kLong));
    return x.index_select(0, indices);
}

// Row i of `rows` goes to row positions[i] of `target`.
void put_rows(const at::Tensor& rows, std::span<const int64_t> positions,
              std::span<std::byte> target) {
    CHECK(rows.is_contiguous());
    CHECK_LE(static_cast<int64_t>(positions.size()), rows.size(0));
    const uint64_t row_bytes = static_cast<uint64_t>(rows.size(1)) * rows.element_size();
    const auto* source = static_cast<const std::byte*>(rows.const_data_ptr());
    for (size_t i = 0; i < positions.size(); ++i) {
        const uint64_t offset_bytes = static_cast<uint64_t>(positions[i]) * row_bytes;
        CHECK_LE(offset_bytes + row_bytes, target.size());
        std::memcpy(target.data() + offset_bytes, source + i * row_bytes, row_bytes);
    }
}

}  // namespace

LlamaCompute::LlamaCompute(const LlamaConfig& config, Dtype dtype, Kernels kernels)
    : state_(std::make_unique<State>()) {
    CHECK_GE(config.block_count, 1);
    const offload::Layout layout =
        offload::make_layout(layers_of(config), offload::block_elements).value();
    State& state = *state_;
    state.config = config;
    state.dtype = dtype;
    state.scalar_type = scalar_type_of(dtype);
    state.kernels = kernels;
    state.frequencies = inverse_frequencies(config.rope, config.head_dim);
    state.embedding = shape_of(layout, 0);
    state.block = shape_of(layout, 1);
    state.head = shape_of(layout, layout.layers.size() - 1);
    CHECK_EQ(state.embedding.spec.tensors.size(), 1u);
    CHECK_EQ(state.block.spec.tensors.size(), size_t{block_tensor_count});
    CHECK_EQ(state.head.spec.tensors.size(), config.tied ? 1u : 2u);
    for (size_t tensor = 0; tensor < block_tensor_count; ++tensor) {
        CHECK_EQ(state.block.spec.tensors[tensor].name,
                 std::string("model.layers.0.") + block_tensor_names[tensor] + ".weight");
    }
}

LlamaCompute::~LlamaCompute() = default;
LlamaCompute::LlamaCompute(LlamaCompute&&) noexcept = default;
LlamaCompute& LlamaCompute::operator=(LlamaCompute&&) noexcept = default;

void LlamaCompute::embed(const MicroBatch& batch, const EmbedForward& io) const {
    const State& state = *state_;
    check_batch(batch);
    const uint64_t row_bytes = offload::bytes_of(state.dtype, state.config.hidden_size);
    CHECK_EQ(io.weights.size(),
             offload::bytes_of(state.dtype, state.embedding.layout.element_count));
    CHECK_EQ(io.hidden_out.size(), static_cast<uint64_t>(batch.token_count()) * row_bytes);
    std::byte* target = io.hidden_out.data();
    for (const int32_t token : batch.input_ids) {
        CHECK_GE(token, 0);
        CHECK_LT(token, state.config.vocabulary_size);
        std::memcpy(target, io.weights.data() + static_cast<uint64_t>(token) * row_bytes,
                    row_bytes);
        target += row_bytes;
    }
}

void LlamaCompute::embed_backward(const MicroBatch& batch, const EmbedBackward& io) const {
    const State& state = *state_;
    check_batch(batch);
    const auto hidden_size = static_cast<uint64_t>(state.config.hidden_size);
    const uint64_t row_bytes = offload::bytes_of(state.dtype, hidden_size);
    CHECK_EQ(io.accumulator.size(), state.embedding.layout.element_count);
    CHECK_EQ(io.hidden_grad.size(), static_cast<uint64_t>(batch.token_count()) * row_bytes);
    if (io.accumulate == Accumulate::store) {
        std::fill(io.accumulator.begin(), io.accumulator.end(), 0.0f);
    }
    const std::byte* source = io.hidden_grad.data();
    for (const int32_t token : batch.input_ids) {
        CHECK_GE(token, 0);
        CHECK_LT(token, state.config.vocabulary_size);
        const std::span<float> row =
            io.accumulator.subspan(static_cast<uint64_t>(token) * hidden_size, hidden_size);
        add_gradient({source, kernels::element_of(state.dtype)}, state.dtype, row, Accumulate::add);
        source += row_bytes;
    }
}

void LlamaCompute::block(const MicroBatch& batch, const BlockForward& io) const {
    const State& state = *state_;
    check_batch(batch);
    const at::NoGradGuard no_graph;
    const at::Tensor x = state.hidden(io.hidden_in, batch);  // (tokens, hidden)
    const Block block = state.make_block(io.weights, batch);
    const BlockKept kept =
        io.kept_out.empty() ? make_kept(block.shape) : kept_at(block.shape, io.kept_out);
    block.keep(x, kept);
    block.finish(kept, state.hidden(io.hidden_out, batch));
}

void LlamaCompute::block_backward(const MicroBatch& batch, const BlockBackward& io) const {
    const State& state = *state_;
    check_batch(batch);
    CHECK_EQ(io.accumulator.size(), state.block.layout.element_count);
    if (io.accumulate == Accumulate::store) state.block.zero_gaps(io.accumulator);
    const at::NoGradGuard no_graph;
    const at::Tensor x = state.hidden(io.hidden_in, batch);  // (tokens, hidden)
    const Block block = state.make_block(io.weights, batch);
    BlockKept kept;
    if (!io.kept_in.empty()) {
        auto* first = const_cast<std::byte*>(io.kept_in.data());  // only read
        kept = kept_at(block.shape, {first, io.kept_in.size()});
    }
    block.backward(x, std::move(kept), state.hidden(io.grad_out, batch),
                   state.hidden(io.grad_in, batch),
                   state.block_sinks(io.accumulator, io.accumulate));
}

uint64_t LlamaCompute::kept_bytes(int64_t row_count, int64_t column_count) const {
    return kept_bytes_of(state_->block_shape(row_count, column_count));
}

HeadResult LlamaCompute::State::head_pass(const MicroBatch& batch, const Head& io,
                                          bool with_gradients) const {
    const at::NoGradGuard no_graph;
    const at::Tensor x = hidden(io.hidden_in, batch);  // (tokens, hidden)
    const OutputWeights weights = output_weights(io);
    const std::vector<int64_t> trained = trained_positions(batch);
    const auto chunk_rows_max = static_cast<size_t>(head_chunk_tokens(config));
    HeadResult result{.loss_sum = 0, .trained_token_count = static_cast<int64_t>(trained.size())};
    for (size_t first = 0; first < trained.size(); first += chunk_rows_max) {
        const size_t count = std::min(chunk_rows_max, trained.size() - first);
        HeadChunk chunk(batch, std::span(trained).subspan(first, count), io.loss_scale);
        const at::Tensor rows = take_rows(x, chunk.positions);  // (rows, hidden)
        if (with_gradients) {
            const at::Tensor d_rows =
                output_backward(rows, weights, chunk.asked(), output_sinks(io));
            put_rows(d_rows, std::span(chunk.positions).first(count), io.grad_in);
        } else {
            output_loss(rows, weights, chunk.asked());
        }
        for (size_t i = 0; i < count; ++i) result.loss_sum += chunk.losses[i];
    }
    return result;
}

HeadResult LlamaCompute::head(const MicroBatch& batch, const Head& io) const {
    const State& state = *state_;
    check_batch(batch);
    CHECK_EQ(io.accumulator.size(), state.head.layout.element_count);
    CHECK_EQ(io.grad_in.size(), io.hidden_in.size());
    CHECK_EQ(io.embedding_accumulator.empty(), !state.config.tied);
    // grad_in must not be hidden_in: a chunk's rows are read after another's are written.
    CHECK(io.grad_in.data() != io.hidden_in.data());
    if (io.accumulate == Accumulate::store) {
        std::fill(io.accumulator.begin(), io.accumulator.end(), 0.0f);
        std::fill(io.embedding_accumulator.begin(), io.embedding_accumulator.end(), 0.0f);
    }
    std::memset(io.grad_in.data(), 0, io.grad_in.size());
    return state.head_pass(batch, io, /*with_gradients=*/true);
}

HeadResult LlamaCompute::head_loss(const MicroBatch& batch, const Head& io) const {
    check_batch(batch);
    CHECK(!io.weights.empty());
    return state_->head_pass(batch, io, /*with_gradients=*/false);
}

void LlamaCompute::logits(const MicroBatch& batch, const Head& io,
                          std::span<const int64_t> positions, std::span<float> logits_out) const {
    const State& state = *state_;
    check_batch(batch);
    const auto position_count = static_cast<int64_t>(positions.size());
    CHECK_LE(position_count, head_chunk_tokens(state.config));
    CHECK_EQ(static_cast<int64_t>(logits_out.size()),
             position_count * state.config.vocabulary_size);
    for (const int64_t position : positions) {
        CHECK_GE(position, 0);
        CHECK_LT(position, batch.token_count());
    }
    const at::NoGradGuard no_graph;
    const at::Tensor chunk = take_rows(state.hidden(io.hidden_in, batch), positions);
    const at::Tensor result =
        logits_of(chunk, state.output_weights(io)).to(at::kFloat);  // (positions, words)
    std::memcpy(logits_out.data(), result.const_data_ptr<float>(), logits_out.size_bytes());
}

uint64_t LlamaCompute::workspace_bytes(int64_t row_count, int64_t column_count) const {
    const State& state = *state_;
    return workspace_bytes_of(state.config, {.block = state.block_shape(row_count, column_count),
                                             .work = work_dtype(state.dtype),
                                             .thread_count = at::get_num_threads(),
                                             .kernels = state.kernels});
}

}  // namespace headrace::engine
