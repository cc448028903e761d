#include "engine/train/host_card.h"

#include <array>
#include <vector>

#include "engine/torch/workspace.h"
#include "engine/train/dry_run.h"
#include "kernels/host/copy.h"

namespace headrace::engine {

using offload::Access;
using offload::Kind;
using offload::Mode;
using offload::Op;
using offload::OpKind;
using offload::Pass;
using offload::Status;

namespace {

MicroBatch view_of(const TokenBatch& batch) {
    return {.row_count = batch.row_count,
            .column_count = batch.column_count,
            .input_ids = batch.input_ids,
            .targets = batch.targets};
}

}  // namespace

HostCard::HostCard(HostCardParts parts) : parts_(parts) {
    CHECK(parts_.config != nullptr && parts_.compute != nullptr);
    CHECK(parts_.slots != nullptr && parts_.reduce_row != nullptr);
}

void HostCard::start_lane() {
    start_torch(parts_.compute_threads);
}

Status HostCard::execute(const CardOp& call) {
    const Op& op = parts_.slots->schedule().ops[call.id];
    switch (op.kind) {
        case OpKind::fetch:
        case OpKind::evict:
            kernels::copy_bytes(parts_.slots->value_bytes(data_access(op, Mode::write), call.batch),
                                parts_.slots->value_bytes(data_access(op, Mode::read), call.batch));
            return {};
        case OpKind::compute: return compute(op, call);
        case OpKind::reduce: *call.norm = reduce(op); return {};
        default: CHECK_TEXT(false, "an op of no lane of the device");
    }
}

Status HostCard::try_shape(int64_t row_count, int64_t column_count) {
    return dry_run({.config = parts_.config,
                    .compute = parts_.compute,
                    .schedule = &parts_.slots->schedule(),
                    .gpu_slab = parts_.slots->slabs().gpu,
                    .row_count = row_count,
                    .column_count = column_count});
}

std::span<float> HostCard::accumulator(const Op& op, uint32_t layer) const {
    const std::span<std::byte> bytes = parts_.slots->run_bytes(op, Kind::acc, Mode::write, layer);
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

Status HostCard::compute(const Op& op, const CardOp& call) const {
    const auto m = static_cast<size_t>(op.micro_batch);
    CHECK_LT(m, call.batch.micro_batches.size());
    const MicroBatch batch = view_of(call.batch.micro_batches[m]);
    return with_workspace(parts_.slots->workspace(), [&] {
        switch (op.pass) {
            case Pass::forward: forward(op, batch); break;
            case Pass::backward: backward(op, batch); break;
            case Pass::head:
            case Pass::loss: *call.loss = head(op, batch, call.loss_scale); break;
            case Pass::none: CHECK_TEXT(false, "a compute op without a pass");
        }
    });
}

// The activation, or its gradient, of this micro-batch: the used prefix of a slot that is laid out
// for the largest one.
std::span<std::byte> HostCard::hidden_bytes(const Op& op, Kind kind, Mode mode,
                                            const MicroBatch& batch) const {
    const Access* access = find_access(op, kind, mode);
    CHECK(access != nullptr);
    const auto elements = static_cast<uint64_t>(batch.token_count() * parts_.config->hidden_size);
    return parts_.slots->bytes_of_slot(access->slot)
        .first(bytes_of(parts_.slots->schedule().workload.dtype, elements));
}

// What the block keeps of this micro-batch: a prefix, too. Empty where it keeps nothing.
std::span<std::byte> HostCard::kept_bytes(const Op& op, Mode mode, const MicroBatch& batch) const {
    const Access* access = find_access(op, Kind::kept, mode);
    if (access == nullptr) return {};
    const uint64_t size_bytes = parts_.compute->kept_bytes(batch.row_count, batch.column_count);
    CHECK_LE(size_bytes, parts_.slots->schedule().workload.kept_bytes);
    return parts_.slots->bytes_of_slot(access->slot).first(size_bytes);
}

void HostCard::forward(const Op& op, const MicroBatch& batch) const {
    const std::span<std::byte> weights =
        parts_.slots->run_bytes(op, Kind::hi, Mode::read, op.layer);
    const std::span<std::byte> out = hidden_bytes(op, Kind::act, Mode::write, batch);
    if (op.layer == 0) {
        parts_.compute->embed(batch, {.weights = weights, .hidden_out = out});
    } else {
        parts_.compute->block(batch, {.weights = weights,
                                      .hidden_in = hidden_bytes(op, Kind::act, Mode::read, batch),
                                      .hidden_out = out,
                                      .kept_out = kept_bytes(op, Mode::write, batch)});
    }
}

void HostCard::backward(const Op& op, const MicroBatch& batch) const {
    const Accumulate accumulate = op.micro_batch == 0 ? Accumulate::store : Accumulate::add;
    const std::span<std::byte> grad_out = hidden_bytes(op, Kind::dact, Mode::read, batch);
    if (op.layer == 0) {
        parts_.compute->embed_backward(
            batch,
            {.hidden_grad = grad_out, .accumulator = accumulator(op, 0), .accumulate = accumulate});
    } else {
        parts_.compute->block_backward(
            batch, {.weights = parts_.slots->run_bytes(op, Kind::hi, Mode::read, op.layer),
                    .hidden_in = hidden_bytes(op, Kind::act, Mode::read, batch),
                    .grad_out = grad_out,
                    .grad_in = hidden_bytes(op, Kind::dact, Mode::write, batch),
                    .accumulator = accumulator(op, op.layer),
                    .accumulate = accumulate,
                    .kept_in = kept_bytes(op, Mode::read, batch)});
    }
}

HeadResult HostCard::head(const Op& op, const MicroBatch& batch, float loss_scale) const {
    LlamaCompute::Head io{.weights = parts_.slots->run_bytes(op, Kind::hi, Mode::read, op.layer),
                          .hidden_in = hidden_bytes(op, Kind::act, Mode::read, batch)};
    const bool is_tied = parts_.config->tied;
    if (is_tied) io.embedding_weights = parts_.slots->run_bytes(op, Kind::hi, Mode::read, 0);
    if (op.pass == Pass::loss) return parts_.compute->head_loss(batch, io);
    io.grad_in = hidden_bytes(op, Kind::dact, Mode::write, batch);
    if (is_tied) io.embedding_accumulator = accumulator(op, 0);
    io.accumulator = accumulator(op, op.layer);
    io.accumulate = op.micro_batch == 0 ? Accumulate::store : Accumulate::add;
    io.loss_scale = loss_scale;
    return parts_.compute->head(batch, io);
}

NormRecord HostCard::reduce(const Op& op) const {
    std::array<std::span<const float>, 2> uses;
    for (const Access& access : op.accesses) {
        if (access.value.kind != Kind::acc) continue;
        const uint64_t size_bytes = bytes_of_value(parts_.slots->schedule().workload, access.value);
        uses[access.value.use] = {
            reinterpret_cast<float*>(parts_.slots->bytes_of_slot(access.slot).data()),
            size_bytes / sizeof(float)};
    }
    const std::vector<offload::TensorPiece> pieces =
        pieces_of(parts_.slots->schedule().workload.layout, op.part);
    const kernels::ReduceOutput output = kernels::reduce_part(
        *parts_.reduce_row,
        {.first_use = uses[0],
         .second_use = uses[1],
         .pieces = pieces,
         .stash_dtype = parts_.slots->schedule().workload.gradients,
         .stash = parts_.slots->bytes_of_slot(find_access(op, Kind::stash, Mode::write)->slot)});
    return {.squares = output.squares, .non_finite_tensor = output.non_finite_tensor};
}

}  // namespace headrace::engine
