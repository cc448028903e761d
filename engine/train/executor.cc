#include "engine/train/executor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

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

Executor::Executor(ExecutorParts parts) : parts_(std::move(parts)) {
    CHECK(parts_.slots != nullptr && parts_.card != nullptr);
    CHECK(parts_.update_pool != nullptr && parts_.update_row != nullptr);
    CHECK(parts_.adam_step_of);
    CHECK(parts_.record_of);
}

void Executor::begin(const Progress& progress) {
    progress_[0] = progress;
}

void Executor::use(const offload::Schedule& schedule) {
    const bool is_first = schedule_ == nullptr;
    schedule_ = &schedule;
    parts_.slots->use(schedule);
    parts_.card->use(schedule);
    if (is_first && parts_.poison_released) {
        for (offload::SlotId slot = 0; slot < schedule.slots.size(); ++slot) {
            const offload::Slot& place = schedule.slots[slot];
            if (place.is_home || place.tier == offload::Tier::nvme) continue;
            kernels::fill_nan(parts_.slots->bytes_of_slot(slot));
        }
    }
    norms_.resize(schedule.workload.layout.parts.size());
    sums_.resize(norms_.size());
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
        if (!is_in_place) kernels::fill_nan(parts_.slots->bytes_of_slot(access.slot));
    }
}

Result<Verdict> Executor::execute(const offload::Ticket& ticket, int64_t given_ns) {
    const Op& op = schedule_->ops[ticket.op];
    if (parts_.poison_released) poison_targets(op);
    switch (op.kind) {
        case OpKind::update: update(op); return Verdict::skip;
        case OpKind::verdict: return give_verdict(ticket.period);
        case OpKind::sync:
        case OpKind::record:
        case OpKind::seal: CHECK_TEXT(false, "commit ops belong to the store");
        default: break;
    }
    if (Status status = on_card(op, ticket, given_ns); !status) return status.error();
    return Verdict::skip;
}

Status Executor::on_card(const Op& op, const offload::Ticket& ticket, int64_t given_ns) {
    PeriodData& data = data_of(ticket.period);
    CardOp call{.id = ticket.op, .given_ns = given_ns, .batch = data.batch};
    if (op.kind == OpKind::reduce) call.norm = &norms_[op.part];
    if (op.pass == Pass::head || op.pass == Pass::loss) {
        call.loss = &data.losses[static_cast<size_t>(op.micro_batch)];
    }
    if (op.pass == Pass::head) {
        // The head's weights waited for the update of the step before, and so for its verdict.
        const Progress& before = progress_before(ticket.period);
        CHECK_EQ(before.attempts, data.step);
        call.loss_scale =
            loss_scale_of_token(before.loss_scale.scale, data.batch.trained_token_count);
    }
    return parts_.card->execute(call);
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
    if (parts_.poison_released && is_read)
        kernels::fill_nan(parts_.slots->bytes_of_slot(memory.slot));
    std::optional<uint64_t> sum;
    if (!is_read && schedule_->path_count > 0 && is_durable(schedule_->slots[home].copies)) {
        CHECK_EQ(target.value.step, -1);  // what this period's update made, with its sum
        sum = sums_[target.value.of][target.value.kind == Kind::hi ? 0 : 1];
    }
    return {.direction = is_read ? offload::Direction::read : offload::Direction::write,
            .place = static_cast<offload::PlaceId>(schedule_->slots[home].offset_bytes),
            .memory = parts_.slots->value_bytes(memory, data_of(ticket.period).batch),
            .done = std::move(done),
            .sum = sum};
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
        .weight = parts_.slots->bytes_of_slot(find_access(op, Kind::hi, Mode::write)->slot),
        .state = parts_.slots->bytes_of_slot(find_access(op, Kind::opt, state_mode)->slot),
        .gradient = parts_.slots->bytes_of_slot(find_access(op, Kind::stash, Mode::read)->slot),
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
