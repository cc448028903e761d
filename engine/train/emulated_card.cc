#include "engine/train/emulated_card.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "engine/models/effort.h"

namespace headrace::engine {

using offload::Kind;
using offload::LaneKind;
using offload::Mode;
using offload::Op;
using offload::OpKind;
using offload::Pass;

namespace {

// Every byte of what comes from the card: as bf16 and as fp32 0.0115, as fp16 1.06.
constexpr int card_byte = 0x3C;

double value_of_gradients(offload::Dtype dtype) {
    return dtype == offload::Dtype::fp16   ? 0x1.0f0p0
           : dtype == offload::Dtype::bf16 ? 0x1.78p-7
                                           : 0x1.787878p-7;
}

// By the clock of now_ns, which is CLOCK_MONOTONIC.
void sleep_until(int64_t time_ns) {
    constexpr int64_t second_ns = 1'000'000'000;
    const timespec time{.tv_sec = time_ns / second_ns, .tv_nsec = time_ns % second_ns};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
    }
}

int64_t ns_of(double time_s) {
    return std::llround(time_s * 1e9);
}

// Drives are real: what the file says of them is never asked, and it need not say anything.
offload::Machine with_a_drive(offload::Machine machine) {
    if (machine.drive.read_bytes_per_s > 0) return machine;
    machine.drive = {.read_bytes_per_s = 1, .write_bytes_per_s = 1};
    return machine;
}

}  // namespace

EmulatedCard::EmulatedCard(const PretendedCard& card, const LlamaConfig& model,
                           const SlotBytes& slots)
    : card_(card),
      model_(model),
      slots_(slots),
      effort_(effort_of(model, card.row_count_max, card.column_count_max)) {}

void EmulatedCard::use(const offload::Schedule& schedule) {
    demands_ = demands_of(schedule, with_a_drive(card_.machine), effort_);
}

// The kernel may wake a thread up to its timer slack late, 50 us by default: longer than many an op
// of a fast card takes.
void EmulatedCard::start_lane() {
    static_cast<void>(prctl(PR_SET_TIMERSLACK, 1UL));
}

// Of the work that the largest micro-batch is.
double EmulatedCard::share_of_work(const CardOp& call) const {
    const Op& op = slots_.schedule().ops[call.id];
    if (op.kind == OpKind::reduce) return 1;
    if (op.kind != OpKind::compute) {
        const offload::Access& target = data_access(op, Mode::write);
        return static_cast<double>(slots_.value_bytes(target, call.batch).size()) /
               static_cast<double>(bytes_of_value(slots_.schedule().workload, target.value));
    }
    const TokenBatch& batch = call.batch.micro_batches[static_cast<size_t>(op.micro_batch)];
    const double most = compute_flop(op, effort_);
    if (most == 0) return 1;
    const double share =
        compute_flop(op, effort_of(model_, batch.row_count, batch.column_count)) / most;
    if (op.pass != Pass::head && op.pass != Pass::loss) return share;
    // The head computes trained positions only.
    return share * static_cast<double>(batch.trained_token_count) /
           static_cast<double>(batch.row_count * batch.column_count);
}

void EmulatedCard::leave_results(const CardOp& call) const {
    const Op& op = slots_.schedule().ops[call.id];
    if (op.lane.kind == LaneKind::d2h) {
        const std::span<std::byte> target =
            slots_.value_bytes(data_access(op, Mode::write), call.batch);
        std::memset(target.data(), card_byte, target.size());
    }
    if (call.loss != nullptr) {
        const TokenBatch& batch = call.batch.micro_batches[static_cast<size_t>(op.micro_batch)];
        const double loss = std::log(static_cast<double>(model_.vocabulary_size));
        *call.loss = {.loss_sum = loss * static_cast<double>(batch.trained_token_count),
                      .trained_token_count = batch.trained_token_count};
    }
    if (call.norm != nullptr) {
        const offload::Workload& workload = slots_.schedule().workload;
        const double value = value_of_gradients(workload.gradients);
        const auto count = static_cast<double>(workload.layout.parts[op.part].element_count);
        *call.norm = {};
        call.norm->squares.add(count * value * value);
    }
}

offload::Status EmulatedCard::execute(const CardOp& call) {
    const Op& op = slots_.schedule().ops[call.id];
    const offload::Demand& demand = demands_[call.id];
    int64_t& free_at_ns = free_at_ns_[static_cast<size_t>(op.lane.kind)];
    const int64_t begin_ns = std::max(call.given_ns + ns_of(demand.latency_s), free_at_ns);
    free_at_ns = begin_ns + ns_of(demand.work_s * share_of_work(call));
    leave_results(call);
    sleep_until(free_at_ns);
    return {};
}

}  // namespace headrace::engine
