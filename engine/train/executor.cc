#include "engine/train/executor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "engine/torch/workspace.h"
#include "kernels/host/copy.h"
#include "kernels/host/fill.h"
#include "offload/page_sum.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Access;
using offload::Kind;
using offload::Mode;
using offload::Op;
using offload::OpKind;
using offload::Pass;
using offload::Result;
using offload::Status;
using offload::Verdict;

namespace {

MicroBatch view_of(const TokenBatch& batch) {
    return {.row_count = batch.row_count,
            .column_count = batch.column_count,
            .input_ids = batch.input_ids,
            .targets = batch.targets};
}

const Access& data_access(const Op& op, Mode mode) {
    for (const Access& access : op.accesses) {
        if (access.mode == mode && !is_control(access.value.kind)) return access;
    }
    CHECK_TEXT(false, "an op without data");
}

}  // namespace

Executor::Executor(ExecutorParts parts) : parts_(std::move(parts)) {
    CHECK(parts_.config != nullptr && parts_.compute != nullptr);
    CHECK(parts_.update_pool != nullptr && parts_.update_row != nullptr);
    CHECK(parts_.reduce_row != nullptr);
    CHECK(parts_.adam_step_of);
    CHECK(parts_.record_of);
}

void Executor::begin(const Progress& progress) {
    progress_[0] = progress;
}

void Executor::use(const offload::Schedule& schedule) {
    if (schedule_ == nullptr && parts_.poison_released) {
        for (offload::SlotId slot = 0; slot < schedule.slots.size(); ++slot) {
            const offload::Slot& place = schedule.slots[slot];
            if (place.is_home || place.tier == offload::Tier::nvme) continue;
            schedule_ = &schedule;
            kernels::fill_nan(bytes_of_slot(slot));
        }
    }
    schedule_ = &schedule;
    norms_.resize(schedule.workload.layout.parts.size());
    sums_.resize(norms_.size());
}

std::span<std::byte> Executor::bytes_of_slot(offload::SlotId slot) const {
    const offload::Slot& place = schedule_->slots[slot];
    CHECK_NE(place.tier, offload::Tier::nvme);
    const bool is_gpu = place.tier == offload::Tier::gpu;
    return (is_gpu ? parts_.gpu_slab : parts_.ram_slab)
        .subspan(place.offset_bytes, place.size_bytes);
}

// The bytes that a value really has in this period: what there is of a short micro-batch is a
// prefix.
std::span<std::byte> Executor::value_bytes(const Access& access, int64_t period) const {
    uint64_t size_bytes = bytes_of_value(schedule_->workload, access.value);
    if (access.value.kind == Kind::act || access.value.kind == Kind::kept) {
        const StepBatch& batch = data_[static_cast<size_t>(period % 2)].batch;
        const TokenBatch& tokens =
            batch.micro_batches[static_cast<size_t>(access.value.micro_batch)];
        const auto token_count = static_cast<uint64_t>(tokens.row_count * tokens.column_count);
        const auto hidden = static_cast<uint64_t>(parts_.config->hidden_size);
        size_bytes =
            access.value.kind == Kind::kept
                ? parts_.compute->kept_bytes(tokens.row_count, tokens.column_count)
                : offload::align_up(bytes_of(schedule_->workload.dtype, token_count * hidden),
                                    offload::page_bytes);
    }
    return bytes_of_slot(access.slot).first(size_bytes);
}

// The side-by-side bytes of one layer's parts in an op's accesses: its flat run.
std::span<std::byte> Executor::run_bytes(const Op& op, Kind kind, Mode mode, uint32_t layer) const {
    const offload::LayerLayout& run = schedule_->workload.layout.layers[layer];
    if (run.part_count == 0) return {};
    std::byte* begin = nullptr;
    uint64_t size_bytes = 0;
    for (const Access& access : op.accesses) {
        if (access.value.kind != kind || access.mode != mode) continue;
        const uint32_t part = access.value.of;
        if (part < run.first_part || part >= run.first_part + run.part_count) continue;
        std::byte* here = bytes_of_slot(access.slot).data();
        if (begin == nullptr) begin = here;
        CHECK_EQ(here, begin + size_bytes);  // find_fault proved it; the executor relies on it
        size_bytes += bytes_of_value(schedule_->workload, access.value);
    }
    CHECK(begin != nullptr);
    return {begin, size_bytes};
}

std::span<float> Executor::accumulator(const Op& op, uint32_t layer) const {
    const std::span<std::byte> bytes = run_bytes(op, Kind::acc, Mode::write, layer);
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// A slot that is written and not read by the same op is written whole: nothing of it may survive.
void Executor::poison_targets(const Op& op) const {
    for (const Access& access : op.accesses) {
        const offload::Slot& slot = schedule_->slots[access.slot];
        if (access.mode != Mode::write || is_control(access.value.kind)) continue;
        if (slot.tier == offload::Tier::nvme) continue;
        const bool is_in_place = std::ranges::any_of(op.accesses, [&](const Access& other) {
            return other.slot == access.slot && other.mode == Mode::read;
        });
        if (!is_in_place) kernels::fill_nan(bytes_of_slot(access.slot));
    }
}

Result<Verdict> Executor::execute(const offload::Ticket& ticket) {
    const Op& op = schedule_->ops[ticket.op];
    if (parts_.poison_released) poison_targets(op);
    switch (op.kind) {
        case OpKind::fetch:
        case OpKind::evict: copy(op, ticket.period); return Verdict::skip;
        case OpKind::compute:
            if (Status status = compute(op, ticket.period); !status) return status.error();
            return Verdict::skip;
        case OpKind::reduce: reduce(op); return Verdict::skip;
        case OpKind::update: update(op); return Verdict::skip;
        case OpKind::verdict: return give_verdict(ticket.period);
        case OpKind::sync:
        case OpKind::record:
        case OpKind::seal: break;
    }
    CHECK_TEXT(false, "commit ops belong to the store");
}

void Executor::start_on(offload::Store& store, const offload::Ticket& ticket, offload::Done done) {
    const Op& op = schedule_->ops[ticket.op];
    switch (op.kind) {
        case OpKind::sync: {
            const Access* flushed = find_access(op, Kind::flushed, Mode::write);
            return store.sync(flushed->value.of, std::move(done));
        }
        case OpKind::record:
            return store.record(parts_.record_of(progress_before(ticket.period)), std::move(done));
        case OpKind::seal: return store.seal(std::move(done));
        default: return store.start(transfer_of(ticket, std::move(done)));
    }
}

offload::Transfer Executor::transfer_of(const offload::Ticket& ticket, offload::Done done) {
    const Op& op = schedule_->ops[ticket.op];
    const Access& source = data_access(op, Mode::read);
    const Access& target = data_access(op, Mode::write);
    const bool is_read = op.lane.kind == offload::LaneKind::nvme_read;
    const Access& memory = is_read ? target : source;
    const offload::SlotId home = is_read ? source.slot : target.slot;
    if (parts_.poison_released && is_read) kernels::fill_nan(bytes_of_slot(memory.slot));
    std::optional<uint64_t> sum;
    if (!is_read && schedule_->path_count > 0 && schedule_->slots[home].copy_count == 2) {
        CHECK_EQ(target.value.step, -1);  // what this period's update made, with its sum
        sum = sums_[target.value.of][target.value.kind == Kind::hi ? 0 : 1];
    }
    return {.direction = is_read ? offload::Direction::read : offload::Direction::write,
            .place = static_cast<offload::PlaceId>(schedule_->slots[home].offset_bytes),
            .memory = value_bytes(memory, ticket.period),
            .done = std::move(done),
            .sum = sum};
}

void Executor::copy(const Op& op, int64_t period) const {
    const Access& source = data_access(op, Mode::read);
    const Access& target = data_access(op, Mode::write);
    kernels::copy_bytes(value_bytes(target, period), value_bytes(source, period));
}

Status Executor::compute(const Op& op, int64_t period) {
    PeriodData& data = data_of(period);
    const auto m = static_cast<size_t>(op.micro_batch);
    CHECK_LT(m, data.batch.micro_batches.size());
    const MicroBatch batch = view_of(data.batch.micro_batches[m]);
    const std::span<std::byte> workspace = parts_.gpu_slab.subspan(
        schedule_->workspace_offset_bytes, schedule_->workload.workspace_bytes);
    return with_workspace(workspace, [&] {
        switch (op.pass) {
            case Pass::forward: forward(op, batch); break;
            case Pass::backward: backward(op, batch); break;
            case Pass::head:
            case Pass::loss: data.losses[m] = head(op, batch, period); break;
            case Pass::none: CHECK_TEXT(false, "a compute op without a pass");
        }
    });
}

// The activation, or its gradient, of this micro-batch: the used prefix of a slot that is laid out
// for the largest one.
std::span<std::byte> Executor::hidden_bytes(const Op& op, Kind kind, Mode mode,
                                            const MicroBatch& batch) const {
    const Access* access = find_access(op, kind, mode);
    CHECK(access != nullptr);
    const auto elements = static_cast<uint64_t>(batch.token_count() * parts_.config->hidden_size);
    return bytes_of_slot(access->slot).first(bytes_of(schedule_->workload.dtype, elements));
}

// What the block keeps of this micro-batch: a prefix, too. Empty where it keeps nothing.
std::span<std::byte> Executor::kept_bytes(const Op& op, Mode mode, const MicroBatch& batch) const {
    const Access* access = find_access(op, Kind::kept, mode);
    if (access == nullptr) return {};
    const uint64_t size_bytes = parts_.compute->kept_bytes(batch.row_count, batch.column_count);
    CHECK_LE(size_bytes, schedule_->workload.kept_bytes);
    return bytes_of_slot(access->slot).first(size_bytes);
}

void Executor::forward(const Op& op, const MicroBatch& batch) const {
    const std::span<std::byte> weights = run_bytes(op, Kind::hi, Mode::read, op.layer);
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

void Executor::backward(const Op& op, const MicroBatch& batch) const {
    const Accumulate accumulate = op.micro_batch == 0 ? Accumulate::store : Accumulate::add;
    const std::span<std::byte> grad_out = hidden_bytes(op, Kind::dact, Mode::read, batch);
    if (op.layer == 0) {
        parts_.compute->embed_backward(
            batch,
            {.hidden_grad = grad_out, .accumulator = accumulator(op, 0), .accumulate = accumulate});
    } else {
        parts_.compute->block_backward(batch,
                                       {.weights = run_bytes(op, Kind::hi, Mode::read, op.layer),
                                        .hidden_in = hidden_bytes(op, Kind::act, Mode::read, batch),
                                        .grad_out = grad_out,
                                        .grad_in = hidden_bytes(op, Kind::dact, Mode::write, batch),
                                        .accumulator = accumulator(op, op.layer),
                                        .accumulate = accumulate,
                                        .kept_in = kept_bytes(op, Mode::read, batch)});
    }
}

HeadResult Executor::head(const Op& op, const MicroBatch& batch, int64_t period) const {
    LlamaCompute::Head io{.weights = run_bytes(op, Kind::hi, Mode::read, op.layer),
                          .hidden_in = hidden_bytes(op, Kind::act, Mode::read, batch)};
    const bool is_tied = parts_.config->tied;
    if (is_tied) io.embedding_weights = run_bytes(op, Kind::hi, Mode::read, 0);
    if (op.pass == Pass::loss) return parts_.compute->head_loss(batch, io);
    io.grad_in = hidden_bytes(op, Kind::dact, Mode::write, batch);
    if (is_tied) io.embedding_accumulator = accumulator(op, 0);
    io.accumulator = accumulator(op, op.layer);
    io.accumulate = op.micro_batch == 0 ? Accumulate::store : Accumulate::add;
    // The head's weights waited for the update of the step before, and so for its verdict.
    const PeriodData& data = data_[static_cast<size_t>(period % 2)];
    const Progress& before = progress_before(period);
    CHECK_EQ(before.attempts, data.step);
    io.loss_scale = loss_scale_of_token(before.loss_scale.scale, data.batch.trained_token_count);
    return parts_.compute->head(batch, io);
}

void Executor::reduce(const Op& op) {
    std::array<std::span<const float>, 2> uses;
    for (const Access& access : op.accesses) {
        if (access.value.kind != Kind::acc) continue;
        const uint64_t size_bytes = bytes_of_value(schedule_->workload, access.value);
        uses[access.value.use] = {reinterpret_cast<float*>(bytes_of_slot(access.slot).data()),
                                  size_bytes / sizeof(float)};
    }
    const std::vector<offload::TensorPiece> pieces = pieces_of(schedule_->workload.layout, op.part);
    const kernels::ReduceOutput output = kernels::reduce_part(
        *parts_.reduce_row,
        {.first_use = uses[0],
         .second_use = uses[1],
         .pieces = pieces,
         .stash_dtype = schedule_->workload.gradients,
         .stash = bytes_of_slot(find_access(op, Kind::stash, Mode::write)->slot)});
    norms_[op.part] = {.squares = output.squares, .non_finite_tensor = output.non_finite_tensor};
}

void Executor::update(const Op& op) {
    const offload::Workload& workload = schedule_->workload;
    CHECK_EQ(verdict_.verdict, Verdict::apply);
    const offload::Part& place = workload.layout.parts[op.part];
    const bool makes_hi_alone = find_access(op, Kind::opt, Mode::write) == nullptr;
    const Mode state_mode = makes_hi_alone ? Mode::read : Mode::write;
    cpu_adam::PartUpdate part{
        .element_count = place.element_count,
        .weight_dtype = workload.dtype,
        .format = workload.states,
        .gradient_dtype = workload.gradients,
        .weight = bytes_of_slot(find_access(op, Kind::hi, Mode::write)->slot),
        .state = bytes_of_slot(find_access(op, Kind::opt, state_mode)->slot),
        .gradient = bytes_of_slot(find_access(op, Kind::stash, Mode::read)->slot),
        .rounding = {.seed = parts_.rounding_seed, .layer = place.layer},
        .first_element = place.first_element,
        .writes = makes_hi_alone ? cpu_adam::Writes::weight : cpu_adam::Writes::weight_and_state};
    if (makes_hi_alone) {  // it goes nowhere but to forward
        return parts_.update_pool->update(*parts_.update_row, verdict_.adam, part);
    }
    std::array<std::atomic<uint64_t>, 2> sums = {};
    const std::function<void(cpu_adam::ElementRange)> add_sums =
        [&](const cpu_adam::ElementRange& range) {
            const cpu_adam::RangeSums range_sums = sums_of(part, range);
            sums[0] += range_sums.weight;
            sums[1] += range_sums.state;
        };
    if (schedule_->path_count > 0) part.on_updated = &add_sums;
    parts_.update_pool->update(*parts_.update_row, verdict_.adam, part);
    sums_[op.part] = {sums[0].load(), sums[1].load()};
}

Verdict Executor::give_verdict(int64_t period) {
    PeriodData& data = data_of(period);
    const Progress& before = progress_before(period);
    CHECK_EQ(before.attempts, data.step);
    const offload::Layout& layout = schedule_->workload.layout;
    StepOutcome& outcome = data.outcome;
    outcome = StepOutcome{};
    outcome.step = data.step;
    outcome.loss_scale = before.loss_scale.scale;
    outcome.counts = data.batch;
    outcome.counts.micro_batches.clear();
    double loss_sum = 0;
    for (const HeadResult& loss : data.losses) loss_sum += loss.loss_sum;
    const auto trained = static_cast<double>(data.batch.trained_token_count);
    // A step without a trained token has no loss: 0 would look like success.
    outcome.loss = trained > 0 ? loss_sum / trained : std::nan("");
    offload::ExactSum squares;
    for (uint32_t part = 0; part < norms_.size(); ++part) {
        squares.merge(norms_[part].squares);
        if (!norms_[part].non_finite_tensor || !outcome.skip_tensor.empty()) continue;
        outcome.skip_tensor =
            layout.specs[layout.parts[part].layer].tensors[*norms_[part].non_finite_tensor].name;
        outcome.skip_reason = SkipReason::not_finite;
    }
    if (data.batch.is_masked()) outcome.skip_reason = SkipReason::nothing_to_train;
    judge(outcome, squares);
    verdict_ = {.verdict = outcome.verdict, .adam = parts_.adam_step_of(before.updates)};
    verdict_.adam.gradient_scale =
        static_cast<float>(static_cast<double>(outcome.clip_factor) / outcome.loss_scale);
    outcome.learning_rate = verdict_.adam.learning_rate;
    outcome.is_scale_exhausted = outcome.skip_reason == SkipReason::not_finite &&
                                 is_exhausted(before.loss_scale, parts_.loss_scale);
    outcome.progress = advance(before, outcome, parts_.loss_scale);
    progress_[static_cast<size_t>(period + 1) % progress_.size()] = outcome.progress;
    return outcome.verdict;
}

// The norm over all parameters, without the loss scale, and torch's clip_grad_norm_: the factor max
// / (norm + 1e-6), at most 1, rounded to fp32 once.
void Executor::judge(StepOutcome& outcome, const offload::ExactSum& squares) const {
    const bool is_finite = outcome.skip_reason != SkipReason::not_finite;
    outcome.grad_norm =
        is_finite ? std::sqrt(squares.to_double()) / outcome.loss_scale : std::nan("");
    if (outcome.skip_reason != SkipReason::none) return;
    outcome.verdict = Verdict::apply;
    if (parts_.max_grad_norm <= 0) return;
    const double factor = parts_.max_grad_norm / (outcome.grad_norm + 1e-6);
    outcome.clip_factor = factor < 1 ? static_cast<float>(factor) : 1.0f;
}

}  // namespace headrace::engine
