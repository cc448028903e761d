#include "engine/train/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/plan/places.h"
#include "engine/train/clock.h"
#include "engine/train/host_card.h"
#include "offload/find_fault.h"
#include "offload/serial.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Period;
using offload::Purpose;
using offload::Result;
using offload::Schedule;
using offload::Status;
using offload::Tier;
using offload::Verdict;

namespace {

// Carries out nvme ops too, one at a time.
Result<Verdict> execute_serially(Executor& executor, offload::Store* store,
                                 const offload::Ticket& ticket) {
    const offload::LaneKind lane = executor.schedule().ops[ticket.op].lane.kind;
    if (lane != offload::LaneKind::nvme_read && lane != offload::LaneKind::nvme_write) {
        return executor.execute(ticket, now_ns());
    }
    CHECK(store != nullptr);
    const Status status = offload::wait_for(
        [&](offload::Done done) { executor.start_on(*store, ticket, std::move(done)); });
    if (!status) return status.error();
    return Verdict::skip;
}

}  // namespace

// What one call of run is about: which periods there are and what happens at their borders.
struct Engine::Segment {
    std::function<std::optional<Period>()> next_period;
    std::function<Status(const Period&)> open;
    std::function<Status(const Period&)> close;
};

Engine::Engine(EngineOptions options, std::unique_ptr<offload::Memory> memory)
    : options_(std::move(options)),
      memory_(std::move(memory)),
      compute_(options_.config, options_.workload.dtype, options_.kernels),
      update_pool_(static_cast<uint32_t>(options_.update_threads)),
      recorder_(warm_up_step_count(options_.plan)) {
    progress_.loss_scale = initial_loss_scale(options_.loss_scale);
}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options,
                                               std::unique_ptr<offload::Memory> memory) {
    std::unique_ptr<Engine> engine(new Engine(std::move(options), std::move(memory)));
    if (Status status = engine->take_memory(); !status) return status.error();
    return engine;
}

Status Engine::take_memory() {
    const auto schedule = schedule_for(options_.workload.micro_batch_count_max, Purpose::train);
    if (!schedule) return schedule.error();
    const Schedule& list = **schedule;
    const auto gpu = memory_->take(Tier::gpu, offload::tier_bytes(list, Tier::gpu));
    if (!gpu) return gpu.error();
    const auto ram = memory_->take(Tier::ram, offload::tier_bytes(list, Tier::ram));
    if (!ram) return ram.error();
    std::vector<offload::PlaceSpec> places = places_of(options_.workload.layout, list.slots);
    if (!places.empty()) {
        CHECK(options_.open_store);
        auto store = options_.open_store(std::move(places), *ram);
        if (!store) return store.error();
        store_ = std::move(*store);
        if (commits()) CHECK_EQ(store_->path_count(), options_.plan.path_count);
    }
    slots_ = std::make_unique<SlotBytes>(options_.config, compute_,
                                         SlotBytes::Slabs{.gpu = *gpu, .ram = *ram});
    card_ = make_card();
    CHECK(card_->has_memory() || !options_.poison_released);
    executor_ =
        std::make_unique<Executor>(ExecutorParts{.slots = slots_.get(),
                                                 .card = card_.get(),
                                                 .update_pool = &update_pool_,
                                                 .update_row = options_.update_row,
                                                 .adam_step_of = options_.adam_step_of,
                                                 .max_grad_norm = options_.max_grad_norm,
                                                 .loss_scale = options_.loss_scale,
                                                 .record_of = options_.record_of,
                                                 .rounding_seed = options_.rounding_seed,
                                                 .poison_released = options_.poison_released});
    executor_->use(list);
    backend_ = std::make_unique<HostBackend>(*executor_, store_.get(),
                                             [this](offload::LaneKind) { card_->start_lane(); });
    return {};
}

std::unique_ptr<Card> Engine::make_card() const {
    if (options_.emulated_card) {
        return std::make_unique<EmulatedCard>(*options_.emulated_card, options_.config, *slots_);
    }
    return std::make_unique<HostCard>(HostCardParts{.config = &options_.config,
                                                    .compute = &compute_,
                                                    .slots = slots_.get(),
                                                    .reduce_row = options_.reduce_row,
                                                    .compute_threads = options_.compute_threads});
}

Result<const Schedule*> Engine::schedule_for(uint32_t micro_batch_count, Purpose purpose) {
    const auto key = std::pair(micro_batch_count, purpose);
    if (const auto found = schedules_.find(key); found != schedules_.end()) return &found->second;
    offload::Workload workload = options_.workload;
    workload.micro_batch_count = micro_batch_count;
    workload.purpose = purpose;
    Result<Schedule> schedule = build(workload, options_.plan);
    if (!schedule) return schedule.error();
    const offload::Fault fault = find_fault(*schedule);
    CHECK_TEXT(!fault.has_value(), fault.value_or(""));
    // All lists of one engine must agree on where everything lives.
    if (!schedules_.empty()) CHECK(schedules_.begin()->second.slots == schedule->slots);
    return &schedules_.emplace(key, std::move(*schedule)).first->second;
}

Status Engine::try_shape(int64_t row_count, int64_t column_count) {
    return card_->try_shape(row_count, column_count);
}

Status Engine::load(const Checkpoint& checkpoint) {
    if (Status status = checkpoint.check_against(options_.workload.layout.specs); !status) {
        return status;
    }
    return load_part_of(checkpoint);
}

Status Engine::load_part_of(const Checkpoint& checkpoint) {
    if (Status status = load_homes(homes(), checkpoint); !status) return status;
    return commit_what_was_loaded();
}

Status Engine::load_made_up() {
    if (Status status = make_up_homes(homes()); !status) return status;
    return commit_what_was_loaded();
}

Status Engine::commit_what_was_loaded() {
    const bool keeps_two = options_.plan.durable_copies == offload::Copies::two;
    return commits() && keeps_two ? commit_and_wait(*store_, options_.record_of(progress_))
                                  : Status{};
}

Status Engine::resume(const Progress& progress) {
    CHECK(commits());
    CHECK_EQ(progress_.attempts, 0);
    progress_ = progress;
    progress_.loss_scale = resumed_loss_scale(progress.loss_scale, options_.loss_scale);
    return load_memory_homes(homes());
}

Status Engine::commit() {
    CHECK(commits());
    if (commits_every_step(options_.plan)) return {};
    if (Status status = withdraw_commits(); !status) return status;
    if (Status status = write_mirrors(homes()); !status) return status;
    return commit_and_wait(*store_, options_.record_of(progress_));
}

Status Engine::withdraw_commits() {
    const bool writes_in_place = commits() && options_.plan.durable_copies == offload::Copies::one;
    return writes_in_place ? withdraw_and_wait(*store_) : Status{};
}

Status Engine::export_to(CheckpointWriter& writer) {
    return export_homes(homes(), writer);
}

Result<HomesDigest> Engine::digest() {
    return digest_homes(homes());
}

uint64_t Engine::tier_bytes(Tier tier) const {
    return offload::tier_bytes(schedules_.begin()->second, tier);
}

uint64_t Engine::step_bytes(offload::LaneKind lane) const {
    const auto full = schedules_.find({options_.workload.micro_batch_count_max, Purpose::train});
    CHECK(full != schedules_.end());
    return moved_bytes(full->second, lane);
}

Status Engine::run_list(const Schedule& schedule, Segment& segment) {
    executor_->use(schedule);
    const bool trains = schedule.workload.purpose == Purpose::train;
    if (trains) recorder_.begin(schedule);
    offload::RunOptions run_options{.next_period = segment.next_period};
    offload::Span alone;  // the serial backend has no clock
    run_options.on_span = [&](offload::Span span) {
        if (options_.is_serial) span = alone;
        const auto lane = static_cast<size_t>(schedule.ops[span.ticket.op].lane.kind);
        lane_times_[lane] += span.end_ns - span.start_ns;
        if (trains) recorder_.add(span);
        ++op_count_;
        if (options_.on_op_done) options_.on_op_done(op_count_);
    };
    const auto execute = [&](const offload::Ticket& ticket) {
        alone = {.ticket = ticket, .start_ns = now_ns()};
        auto done = execute_serially(*executor_, store_.get(), ticket);
        alone.end_ns = now_ns();
        return done;
    };
    offload::SerialBackend serial(
        {.execute = execute, .open = segment.open, .close = segment.close});
    if (!options_.is_serial) backend_->begin({.open = segment.open, .close = segment.close});
    offload::Backend& backend =
        options_.is_serial ? static_cast<offload::Backend&>(serial) : *backend_;
    const auto verdict = run(schedule, backend, run_options);
    return verdict ? Status{} : Status(verdict.error());
}

Status Engine::train(const TrainOptions& options) {
    CHECK(options.batch_of && options.micro_batch_count_of && options.on_step);
    int64_t first = progress_.attempts;
    const int64_t end_step = first + options.step_count;
    if (uses_nvme(options_.plan)) {
        if (Status status = withdraw_commits(); !status) return status;
    }
    while (first < end_step) {
        // A list has a fixed number of micro-batches: steps with another one follow after a drain.
        const int64_t micro_batches = options.micro_batch_count_of(first);
        int64_t end = first + 1;
        while (end < end_step && options.micro_batch_count_of(end) == micro_batches) ++end;
        if (Status status = train_segment(options, first, end); !status) return status;
        if (progress_.attempts < end) break;  // asked to stop
        first = end;
    }
    return {};
}

Status Engine::train_segment(const TrainOptions& options, int64_t first, int64_t end) {
    const auto schedule =
        schedule_for(static_cast<uint32_t>(options.micro_batch_count_of(first)), Purpose::train);
    if (!schedule) return schedule.error();
    const int64_t period_count = end - first + 1;  // the last one is the drain
    int64_t next = 0;
    bool is_drained = false;
    int64_t step_began_ns = now_ns();
    Segment segment;
    segment.next_period = [&]() -> std::optional<Period> {
        if (is_drained) return std::nullopt;
        const int64_t index = next++;
        is_drained = index + 1 == period_count || (options.wants_stop && options.wants_stop());
        return Period{.index = index, .trains = !is_drained};
    };
    segment.open = [&](const Period& period) -> Status {
        PeriodData& data = executor_->data_of(period.index);
        data = PeriodData{};
        data.step = first + period.index;
        data.trains = period.trains;
        if (!period.trains) return {};
        data.batch = options.batch_of(data.step);
        data.losses.resize(data.batch.micro_batches.size());
        return {};
    };
    segment.close = [&](const Period& period) -> Status {
        if (!period.trains) return {};
        StepOutcome& outcome = executor_->data_of(period.index).outcome;
        outcome.time_ns = now_ns() - step_began_ns;
        step_began_ns += outcome.time_ns;
        return options.on_step(outcome);
    };
    executor_->begin(progress_);
    if (Status status = run_list(**schedule, segment); !status) return status;
    progress_ = executor_->progress_before(next - 1);
    CHECK_EQ(progress_.attempts, first + next - 1);
    return {};
}

Result<EvalOutcome> Engine::evaluate(std::vector<TokenBatch> micro_batches) {
    EvalOutcome outcome;
    double loss_sum = 0;
    const size_t most = options_.workload.micro_batch_count_max;
    for (size_t first = 0; first < micro_batches.size(); first += most) {
        const size_t count = std::min(most, micro_batches.size() - first);
        const auto schedule = schedule_for(static_cast<uint32_t>(count), Purpose::evaluate);
        if (!schedule) return schedule.error();
        bool is_done = false;
        Segment segment;
        segment.next_period = [&]() -> std::optional<Period> {
            if (std::exchange(is_done, true)) return std::nullopt;
            return Period{.trains = false};
        };
        segment.open = [&](const Period& period) -> Status {
            PeriodData& data = executor_->data_of(period.index);
            data = PeriodData{};
            for (size_t i = first; i < first + count; ++i) {
                data.batch.micro_batches.push_back(std::move(micro_batches[i]));
            }
            data.losses.resize(count);
            return {};
        };
        segment.close = [&](const Period& period) -> Status {
            for (const HeadResult& loss : executor_->data_of(period.index).losses) {
                loss_sum += loss.loss_sum;
                outcome.trained_token_count += loss.trained_token_count;
            }
            return {};
        };
        if (Status status = run_list(**schedule, segment); !status) return status.error();
    }
    const auto trained = static_cast<double>(outcome.trained_token_count);
    outcome.loss = trained > 0 ? loss_sum / trained : 0;
    return outcome;
}

}  // namespace headrace::engine
