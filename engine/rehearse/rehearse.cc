#include "engine/rehearse/rehearse.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/config/machine.h"
#include "engine/models/effort.h"
#include "engine/plan/part_of_model.h"
#include "engine/rehearse/made_up_step.h"
#include "engine/resume/identity.h"
#include "engine/resume/run_store.h"
#include "engine/torch/threads.h"
#include "engine/train/resident.h"
#include "engine/train/run_batches.h"
#include "engine/train/run_engine.h"
#include "engine/train/step_report.h"
#include "offload/simulate.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::LaneKind;
using offload::Result;
using offload::Schedule;
using offload::Status;

namespace {

RunConfig config_of_rehearsal(const RunConfig& config) {
    RunConfig rehearsed = config;
    rehearsed.output_dir += ".rehearsal";  // names the store
    return rehearsed;
}

RehearsedStep step_of(const Schedule& schedule, const offload::Machine& machine,
                      const offload::Effort& effort, const Placement& placement) {
    RehearsedStep step{.forecast = simulate(schedule, machine, effort),
                       .read_bytes = moved_bytes(schedule, LaneKind::nvme_read),
                       .written_bytes = moved_bytes(schedule, LaneKind::nvme_write),
                       .needs = placement.needs};
    for (const offload::Op& op : schedule.ops) {
        if (op.kind != offload::OpKind::update) continue;
        step.updated_parameter_count += schedule.workload.layout.parts[op.part].element_count;
    }
    return step;
}

// One call of rehearse(), in the order of its members.
class Run {
  public:
    Run(const RehearsalInputs& inputs, const RehearsalReporter& reporter)
        : inputs_(inputs),
          reporter_(reporter),
          config_(config_of_rehearsal(inputs.config)),
          model_(inputs.model),
          threads_(threads_of(config_)) {
        model_.block_count = inputs.block_count;
    }

    ~Run() {
        const bool has_store = engine_ && engine_->store() != nullptr;
        engine_.reset();
        if (!has_store) return;
        const Status removed =
            nvme::remove_store(config_.offload.nvme_paths, store_name_of(config_));
        if (!removed) reporter_.warn(removed.error().text());
    }

    Result<Rehearsal> run() {
        start_torch(threads_.compute_threads);
        warm_up_torch(config_.dtype);
        if (Status status = prepare(); !status) return status.error();
        for (const std::string& line : whole_.lines) reporter_.note(line);
        part_ = part_of(whole_.placement, model_);
        if (Status status = make_engine(); !status) return status.error();
        if (Status status = load(); !status) return status.error();
        if (Status status = turn_steps(); !status) return status.error();
        return result();
    }

    Result<HostPlacement> place_only() {
        if (Status status = prepare(); !status) return status.error();
        return std::move(whole_);
    }

  private:
    // All that needs neither torch nor a drive.
    Status prepare() {
        Result<std::optional<MachineFile>> card = emulated_card(config_);
        if (!card) return card.error();
        card_ = std::move(*card);
        if (inputs_.train_data != nullptr) {
            BatchOptions options = train_batches(config_);
            options.step_count = offload::warm_up_step_count_max + inputs_.step_count;
            batches_.emplace(*inputs_.train_data, options);
        }
        return place();
    }

    // Of the whole run, however few steps of it are turned.
    std::vector<MicroBatchShape> shapes() const {
        if (inputs_.train_data != nullptr) {
            return largest_shapes(config_, *inputs_.train_data, inputs_.eval_data);
        }
        return {
            {.row_count = config_.per_device_train_batch_size, .column_count = config_.max_length}};
    }

    int64_t micro_batch_count_of(int64_t step) const {
        return batches_ ? batches_->micro_batch_count_of(step)
                        : config_.gradient_accumulation_steps;
    }

    Status place() {
        std::vector<MicroBatchShape> largest = shapes();
        shape_ = largest.front();
        Result<HostPlacement> placed =
            place_on_host({.config = config_,
                           .model = inputs_.model,
                           .shapes = std::move(largest),
                           .micro_batch_count_max = micro_batch_count_of(0),
                           .step_count = inputs_.step_count,
                           .threads = threads_,
                           .memory = {.available_bytes = read_machine().ram_free_bytes()},
                           .machine = inputs_.machine ? &*inputs_.machine : nullptr,
                           .card = card_ ? &*card_ : nullptr,
                           .saved_part_bytes = std::nullopt});
        if (!placed) return placed.error();
        whole_ = std::move(*placed);
        return {};
    }

    Status make_engine() {
        auto engine = engine::make_engine(
            {.config = config_,
             .model = model_,
             .placement = part_,
             .threads = threads_,
             .largest_shape = shape_,
             .card = card_ ? &*card_ : nullptr,
             .learning_rate_of = [rate = config_.learning_rate](int64_t) { return rate; },
             .identity = identity_,
             .drive_cache = inputs_.drive_cache,
             .drives = inputs_.drives,
             .note = reporter_.note,
             .on_stuck = reporter_.stuck,
             .should_stop = [this] { return reporter_.stop_signal() != 0; },
             .on_store_opened =
                 [this](nvme::NvmeStore& store) {
                     for (const std::string& note : store.notes()) reporter_.warn(note);
                     return store.unlink_names();
                 }});
        if (!engine) return engine.error();
        engine_ = std::move(*engine);
        return engine_->try_shape(shape_.row_count, shape_.column_count);
    }

    Status load() {
        if (inputs_.model_dir.empty()) return engine_->load_made_up();
        const Result<Checkpoint> checkpoint = Checkpoint::open(inputs_.model_dir);
        if (!checkpoint) return checkpoint.error();
        const Status known = checkpoint->check_against(whole_.placement.workload.layout.specs);
        return known ? engine_->load_part_of(*checkpoint) : known;
    }

    Status turn_steps() {
        const int64_t warm_up = warm_up_step_count(part_.plan);
        const auto batch_of = [this, warm_up](int64_t step) {
            StepBatch batch = batches_ ? batches_->step(step) : made_up_step(config_, model_, step);
            int64_t token_count = 0;
            for (const TokenBatch& one : batch.micro_batches) {
                token_count += one.row_count * one.column_count;
            }
            if (step >= warm_up) token_counts_.push_back(token_count);
            return batch;
        };
        return engine_->train(
            {.step_count = warm_up + inputs_.step_count,
             .batch_of = batch_of,
             .micro_batch_count_of = [this](int64_t step) { return micro_batch_count_of(step); },
             .on_step = [this](const StepOutcome& outcome) -> Status {
                 const int number = reporter_.stop_signal();
                 if (number == 0) return {};
                 return Error{ErrorCode::stopped,
                              fmt::format("the rehearsal was stopped by signal {} after step {}",
                                          number, outcome.step + 1),
                              ""};
             }});
    }

    Result<Rehearsal> result() {
        const offload::StepRecorder& recorder = engine_->recorder();
        const auto median = recorder.median_step();
        if (!median) {
            return Error{ErrorCode::usage,
                         "the rehearsal has no two steps of the same number of micro-batches one "
                         "after the other",
                         "give more data, or fewer gradient_accumulation_steps"};
        }
        Rehearsal rehearsal{.emulated = card_ ? card_->machine.name : "",
                            .block_count = model_.block_count,
                            .whole_block_count = inputs_.model.block_count,
                            .part = {},
                            .whole = {},
                            .steps_s = {},
                            .step_s = median->seconds(),
                            .lane_times = {}};
        for (const offload::Window& step : recorder.steps()) {
            rehearsal.steps_s.push_back(step.seconds());
        }
        rehearsal.lane_times = lane_times(*recorder.schedule(), recorder.timeline(), *median);
        rehearsal.peak_rss_bytes = read_resident_memory().peak_bytes;
        predict(rehearsal);
        write_trace({.path = config_.offload.advanced.trace,
                     .emulated = rehearsal.emulated,
                     .recorder = recorder,
                     .effort = effort_of(model_, shape_.row_count, shape_.column_count),
                     .machine = whole_.machine},
                    reporter_.note, reporter_.warn);
        return rehearsal;
    }

    // For as many tokens as a step really had.
    void predict(Rehearsal& rehearsal) const {
        CHECK(!token_counts_.empty());
        int64_t sum = 0;
        for (const int64_t count : token_counts_) sum += count;
        rehearsal.token_count = sum / std::ssize(token_counts_);
        const double share = static_cast<double>(rehearsal.token_count) /
                             static_cast<double>(part_.workload.micro_batch_count_max *
                                                 shape_.row_count * shape_.column_count);
        const auto effort = [&](const LlamaConfig& model) {
            return scaled(effort_of(model, shape_.row_count, shape_.column_count), share);
        };
        const auto list = build(whole_.placement.workload, whole_.placement.plan);
        CHECK(list.ok());
        rehearsal.part =
            step_of(*engine_->recorder().schedule(), whole_.machine, effort(model_), part_);
        rehearsal.whole = step_of(*list, whole_.machine, effort(inputs_.model), whole_.placement);
    }

    const RehearsalInputs& inputs_;
    const RehearsalReporter& reporter_;
    RunConfig config_;
    LlamaConfig model_;  // the part
    const HostThreads threads_;
    std::optional<MachineFile> card_;
    std::optional<BatchPlan> batches_;
    MicroBatchShape shape_;
    HostPlacement whole_;
    Placement part_;
    const Identity identity_{
        .numerics = {{"rehearsal", "nothing to go on with"}}, .job = {}, .recipe = {}};
    std::unique_ptr<Engine> engine_;
    std::vector<int64_t> token_counts_;  // of the measured steps, padding included
};

}  // namespace

Result<HostPlacement> place_rehearsal(const RehearsalInputs& inputs) {
    const RehearsalReporter nobody;
    return Run(inputs, nobody).place_only();
}

RehearsalInputs with_config(const RehearsalInputs& inputs, const RunConfig& config) {
    return {.config = config,
            .model = inputs.model,
            .model_dir = inputs.model_dir,
            .train_data = inputs.train_data,
            .eval_data = inputs.eval_data,
            .block_count = inputs.block_count,
            .step_count = inputs.step_count,
            .drive_cache = inputs.drive_cache,
            .machine = inputs.machine,
            .drives = inputs.drives};
}

Result<Rehearsal> rehearse(const RehearsalInputs& inputs, const RehearsalReporter& reporter) {
    CHECK_GE(inputs.block_count, 1);
    CHECK_LE(inputs.block_count, inputs.model.block_count);
    CHECK_GE(inputs.step_count, 1);
    CHECK(reporter.note && reporter.warn && reporter.stop_signal && reporter.stuck);
    return Run(inputs, reporter).run();
}

}  // namespace headrace::engine
