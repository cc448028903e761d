#include "engine/train/dry_run.h"

#include <algorithm>
#include <vector>

#include "engine/torch/workspace.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Status;

namespace {

// Hands out the slots' bytes in front of the workspace, from the first on. There are enough: the
// rings hold a layer's weights and accumulators and at least three activations; a layer that keeps
// has a home on the gpu, or a ring there.
class Scratch {
  public:
    explicit Scratch(std::span<std::byte> bytes) : rest_(bytes) {}

    std::span<std::byte> take(uint64_t size_bytes) {
        const uint64_t slot_bytes = offload::align_up(size_bytes, offload::page_bytes);
        CHECK_LE(slot_bytes, rest_.size());
        const std::span<std::byte> taken = rest_.first(size_bytes);
        rest_ = rest_.subspan(slot_bytes);
        return taken;
    }

    std::span<float> take_floats(uint64_t element_count) {
        const std::span<std::byte> bytes = take(element_count * sizeof(float));
        return {reinterpret_cast<float*>(bytes.data()), element_count};
    }

  private:
    std::span<std::byte> rest_;
};

uint64_t elements_of(const DryRun& options, uint32_t layer) {
    return options.schedule->workload.layout.layers[layer].element_count;
}

uint64_t weight_bytes(const DryRun& options, uint32_t layer) {
    return bytes_of(options.schedule->workload.dtype, elements_of(options, layer));
}

uint64_t hidden_bytes(const DryRun& options) {
    const auto elements = static_cast<uint64_t>(options.row_count * options.column_count *
                                                options.config->hidden_size);
    return bytes_of(options.schedule->workload.dtype, elements);
}

// A block that keeps, or one that computes again in backward.
void try_block(const DryRun& options, const MicroBatch& batch, bool keeps, Scratch scratch) {
    constexpr uint32_t layer = 1;
    const std::span<std::byte> weights = scratch.take(weight_bytes(options, layer));
    const std::span<std::byte> hidden = scratch.take(hidden_bytes(options));
    const std::span<std::byte> out = scratch.take(hidden_bytes(options));
    std::span<std::byte> kept;
    if (keeps) {
        kept = scratch.take(options.compute->kept_bytes(batch.row_count, batch.column_count));
    }
    options.compute->block(
        batch, {.weights = weights, .hidden_in = hidden, .hidden_out = out, .kept_out = kept});
    options.compute->block_backward(
        batch, {.weights = weights,
                .hidden_in = hidden,
                .grad_out = out,
                .grad_in = out,
                .accumulator = scratch.take_floats(elements_of(options, layer)),
                .accumulate = Accumulate::store,
                .kept_in = kept});
}

// As the plan has them: either kind of block, or both. A micro-batch that is too large to be kept
// is one of evaluation, which keeps nothing.
void try_blocks(const DryRun& options, const MicroBatch& batch, std::span<std::byte> slots) {
    if (options.config->block_count == 0) return;
    const std::vector<bool> keeps = layers_that_keep(*options.schedule);
    const auto keeping_count = std::ranges::count(keeps, true);
    const bool is_kept = options.compute->kept_bytes(batch.row_count, batch.column_count) <=
                         options.schedule->workload.kept_bytes;
    if (keeping_count > 0 && is_kept) try_block(options, batch, true, Scratch(slots));
    if (keeping_count < options.config->block_count || !is_kept) {
        try_block(options, batch, false, Scratch(slots));
    }
}

void try_head(const DryRun& options, const MicroBatch& batch, Scratch scratch) {
    const uint32_t layer = head_layer(options.schedule->workload);
    LlamaCompute::Head io;
    if (options.config->tied) {
        io.embedding_weights = scratch.take(weight_bytes(options, 0));
        io.embedding_accumulator = scratch.take_floats(elements_of(options, 0));
    }
    io.weights = scratch.take(weight_bytes(options, layer));
    io.accumulator = scratch.take_floats(elements_of(options, layer));
    io.hidden_in = scratch.take(hidden_bytes(options));
    io.grad_in = scratch.take(hidden_bytes(options));
    options.compute->head(batch, io);
}

}  // namespace

Status dry_run(const DryRun& options) {
    CHECK(options.config != nullptr && options.compute != nullptr && options.schedule != nullptr);
    CHECK(options.row_count > 0 && options.column_count > 0);
    const auto token_count = static_cast<size_t>(options.row_count * options.column_count);
    const std::vector<int32_t> tokens(token_count, 0);
    const MicroBatch batch{.row_count = options.row_count,
                           .column_count = options.column_count,
                           .input_ids = tokens,
                           .targets = tokens};
    const offload::Schedule& schedule = *options.schedule;
    const std::span<std::byte> slots = options.gpu_slab.first(schedule.workspace_offset_bytes);
    const std::span<std::byte> workspace = options.gpu_slab.subspan(
        schedule.workspace_offset_bytes, schedule.workload.workspace_bytes);
    Status status = with_workspace(workspace, [&] { try_blocks(options, batch, slots); });
    if (status)
        status = with_workspace(workspace, [&] { try_head(options, batch, Scratch(slots)); });
    if (!status) return wrap(status.error(), "the dry run of the largest micro-batch failed");
    return {};
}

}  // namespace headrace::engine
