#include "engine/train/train.h"

#include <fmt/format.h>

#include <chrono>

#include "engine/config/lr_schedule.h"
#include "engine/config/machine.h"
#include "engine/torch/threads.h"
#include "engine/train/clock.h"
#include "engine/train/pauses.h"
#include "engine/train/run_batches.h"
#include "engine/train/run_engine.h"
#include "engine/train/run_report.h"
#include "engine/train/run_setup.h"
#include "engine/train/wait_watch.h"

namespace headrace::engine {

using offload::Result;
using offload::Status;

namespace {

// One call of train().
class Training {
  public:
    Training(const TrainInputs& inputs, const TrainReporter& reporter)
        : inputs_(inputs),
          config_(inputs.config),
          reporter_(reporter),
          ram_free_bytes_(read_machine().ram_free_bytes()),
          threads_(threads_of(config_)),
          batches_(inputs.train_data, train_batches(config_)),
          waits_(inputs.drives.wait_told_every.value_or(wait_told_every_default),
                 [this](const std::string& line) {
                     if (reporter_.waiting) reporter_.waiting(line);
                 }) {}

    Status run() {
        Status status = prepare();
        if (status) {
            status = turn_steps();
            report_->say_where_steps_went(*engine_);
        }
        if (status && !is_emulated()) status = export_model();
        if (status) status = finish();
        leave(status);
        return status;
    }

  private:
    Status prepare() {
        start_torch(threads_.compute_threads);
        warm_up_torch(config_.dtype);
        baseline_ = read_resident_memory();
        const SetupInputs inputs{.run = inputs_,
                                 .reporter = reporter_,
                                 .batches = batches_,
                                 .threads = threads_,
                                 .ram_free_bytes = ram_free_bytes_};
        const Result<Checkpoint> checkpoint = Checkpoint::open(inputs_.model_dir);
        if (!checkpoint) return checkpoint.error();
        const Status known = checkpoint->check_against(layers_of(inputs_.model));
        if (!known) return known;
        waits_.begin("looking at the model's files");
        Result<RunSetup> setup = set_up(inputs, *checkpoint);
        if (!setup) return setup.error();
        setup_ = std::move(*setup);
        if (Status status = place_run(inputs, setup_); !status) return status;
        const Result<DriveWrites> writes = plan_writes(inputs, setup_, *checkpoint);
        if (!writes) return writes.error();
        setup_.writes = *writes;
        if (Status status = take_what_it_needs(); !status) return status;
        waits_.begin(is_resumed() ? "reading the run's weights and states back"
                                  : "loading the model");
        const Status loaded = is_resumed() ? engine_->resume(setup_.saved->saved.progress)
                                           : engine_->load(*checkpoint);
        if (!loaded) return loaded;
        waits_.end();
        if (Status status = stop_if_asked("before the first step"); !status) return status;
        if (Status status = reporter_.begin(); !status) return status;
        return report_->open(is_resumed() ? std::optional(progress().attempts) : std::nullopt);
    }

    // Memory, the store's space and the result's, and the certainty that all batches compute in it:
    // what a run may lack it is told now, not after hours.
    Status take_what_it_needs() {
        waits_.begin("taking memory and opening the run's store");
        report_.emplace(ReportedRun{.inputs = inputs_,
                                    .reporter = reporter_,
                                    .batches = batches_,
                                    .placed = setup_.placed,
                                    .shape = setup_.shapes.front(),
                                    .card = card()});
        if (Status status = make_engine(); !status) return status;
        report_->say_traffic(*engine_);
        if (!is_emulated()) {
            if (Status status = make_writer(); !status) return status;
        }
        for (const MicroBatchShape& shape : setup_.shapes) {
            const Status status = engine_->try_shape(shape.row_count, shape.column_count);
            if (!status) return status;
        }
        return {};
    }

    Status make_engine() {
        const LrPlan lr = lr_plan_of(config_, batches_.step_count());
        auto engine = engine::make_engine(
            {.config = config_,
             .model = inputs_.model,
             .placement = placement(),
             .threads = threads_,
             .largest_shape = setup_.shapes.front(),
             .card = card(),
             .learning_rate_of = [lr](int64_t update_index) { return lr_at(lr, update_index); },
             .identity = setup_.identity,
             .saved = is_resumed() ? &*setup_.saved : nullptr,
             .drive_cache = inputs_.drive_cache,
             .drives = inputs_.drives,
             .note = reporter_.note,
             .on_stuck = reporter_.stuck,
             .should_stop = [this] { return reporter_.stop_signal() != 0; },
             .on_store_opened =
                 [this](const nvme::NvmeStore& store) {
                     report_->watch(store);
                     return Status();
                 },
             .on_op_done = reporter_.op_done});
        if (!engine) return engine.error();
        engine_ = std::move(*engine);
        return {};
    }

    // Takes the space of the result.
    Status make_writer() {
        auto writer =
            CheckpointWriter::create({.folder = config_.output_dir + "/" + trained_model_folder,
                                      .source_folder = inputs_.model_dir,
                                      .layers = placement().workload.layout.specs,
                                      .dtype = config_.dtype});
        if (!writer) return writer.error();
        writer_ = std::make_unique<CheckpointWriter>(std::move(*writer));
        return {};
    }

    Status turn_steps() {
        const int64_t total = batches_.step_count();
        const Pauses pauses(config_, setup_.commit_at, total);
        int64_t done = progress().attempts;
        if (is_resumed()) reporter_.note(fmt::format("resuming after step {} of {}", done, total));
        if (pauses.evaluates_after(done)) {
            if (Status status = evaluate(); !status) return status;
        }
        while (done < total) {
            const int64_t before = done;
            if (Status status = train_to(pauses.next(done)); !status) return status;
            done = progress().attempts;
            const bool is_stopping = done < total && wants_stop(due_bytes(pauses, done));
            if (pauses.saves_after(done) || (is_stopping && pauses.saves())) {
                if (Status status = save(); !status) return status;
            }
            if (is_stopping) return why_it_stops();
            CHECK_GT(done, before);
            if (!pauses.evaluates_after(done)) continue;
            if (Status status = evaluate(); !status) return status;
        }
        return {};
    }

    // Or to the step at which the run is asked to stop, or could come to its write limit if the
    // steps wrote as much as they can: at rest it is known how much they did.
    Status train_to(int64_t end) {
        const int64_t done = progress().attempts;
        rested_at_ = begun_ = done;
        report_->look_at_rest();
        wait_for_step(done, end);
        Status status = engine_->train(
            {.step_count = end - done,
             .batch_of =
                 [this](int64_t step) {
                     begun_ = step + 1;
                     return batches_.step(step);
                 },
             .micro_batch_count_of =
                 [this](int64_t step) { return batches_.micro_batch_count_of(step); },
             .on_step =
                 [this, end](const StepOutcome& outcome) {
                     Status goes_on = after_step(outcome);
                     wait_for_step(outcome.step + 1, end);
                     return goes_on;
                 },
             .wants_stop = [this] { return wants_stop(); }});
        waits_.end();
        rested_at_ = begun_ = progress().attempts;
        report_->look_at_rest();
        return status;
    }

    Status after_step(const StepOutcome& outcome) {
        report_->step(outcome);
        if (Status status = check_converges(outcome, loss_scale_rule_of(config_)); !status) {
            return status;
        }
        // A run that commits stops where its updates are done: train_to ends there.
        const bool is_last = outcome.step + 1 == batches_.step_count();
        return is_last || commits() ? Status{} : stop_if_asked(describe_step(outcome.step + 1));
    }

    // For the step after `done` ones, or for the updates of the last before `end`.
    void wait_for_step(int64_t done, int64_t end) {
        const std::chrono::duration<double> usual(2 * placement().forecast.step_s);
        waits_.begin(done == end ? "finishing the updates of step " + std::to_string(done)
                                 : fmt::format("in step {} of {}", done + 1, batches_.step_count()),
                     std::chrono::duration_cast<WaitWatch::Duration>(usual));
    }

    bool wants_stop(uint64_t due_bytes = 0) const {
        return reporter_.stop_signal() != 0 ||
               is_at_write_limit(written(), setup_.writes, config_.offload.nvme_write_limit_bytes,
                                 due_bytes);
    }

    // Of a run that goes on after `done` steps: before the next one.
    uint64_t due_bytes(const Pauses& pauses, int64_t done) const {
        return (pauses.saves_after(done) ? setup_.writes.save_bytes : 0) +
               (pauses.evaluates_after(done) ? setup_.writes.evaluation_bytes : 0);
    }

    Written written() const {
        Written written = report_->written();
        if (is_resumed()) {  // repacked into a successor, before this store was there
            written.total_bytes += setup_.writes.load_bytes;
            written.at_rest_bytes += setup_.writes.load_bytes;
        }
        written.step_count = begun_ - rested_at_;
        return written;
    }

    Status why_it_stops() const {
        const std::string when = describe_step(progress().attempts);
        if (Status status = stop_if_asked(when); !status) return status;
        return stopped_at_write_limit(written(), setup_.writes,
                                      *config_.offload.nvme_write_limit_bytes, when);
    }

    Status stop_if_asked(const std::string& when) const {
        const int number = reporter_.stop_signal();
        CHECK_GE(number, 0);
        if (number == 0) return {};
        return stopped_by_signal(number, when, commits() ? Kept::resume_point : Kept::nothing);
    }

    Status save() {
        waits_.begin("saving " + describe_step(progress().attempts));
        if (Status status = engine_->commit(); !status) return status;
        waits_.end();
        report_->save(progress().attempts);
        return {};
    }

    Status evaluate() {
        if (inputs_.eval_data == nullptr) return {};
        const int64_t done = progress().attempts;
        const int64_t began_ns = now_ns();
        BatchPlan plan(*inputs_.eval_data, eval_batches(config_, *inputs_.eval_data));
        waits_.begin("evaluating " + describe_step(done));
        const Result<EvalOutcome> outcome = engine_->evaluate(plan.step(0).micro_batches);
        waits_.end();
        if (!outcome) return outcome.error();
        report_->evaluation(done, *outcome, static_cast<double>(now_ns() - began_ns) * 1e-6);
        return {};
    }

    Status export_model() {
        waits_.begin(
            fmt::format("writing the model to {}/{}", config_.output_dir, trained_model_folder));
        if (Status status = engine_->export_to(*writer_); !status) return status;
        return writer_->finish();
    }

    Status finish() {
        RunEnd end{.engine = *engine_,
                   .identity = is_resumed() ? identity_after(progress().attempts,
                                                             setup_.saved->saved, setup_.identity)
                                            : setup_.identity,
                   .baseline = baseline_,
                   .digest = std::nullopt};
        if (!is_emulated()) {
            waits_.begin("hashing weights and states");
            const Result<HomesDigest> digest = engine_->digest();
            waits_.end();
            if (!digest) return digest.error();
            end.digest = *digest;
        }
        report_->finish(end);
        return {};
    }

    // The store of a run that ended before its end is kept, if there is something to go on with;
    // any other is removed.
    void leave(const Status& status) {
        waits_.end();
        if (!engine_ || engine_->store() == nullptr) return;
        const bool is_kept = !status && !is_emulated() && has_resume_point();
        if (is_kept) {
            reporter_.note(
                "what was committed is kept: resume_from_checkpoint=true goes on from there");
        }
        engine_.reset();
        if (is_kept) return;
        const Status removed =
            nvme::remove_store(config_.offload.nvme_paths, store_name_of(config_));
        if (!removed) reporter_.warn(removed.error().text());
    }

    // What resume_from_checkpoint would go on from. A commit of no step is one only where this
    // start went on from it: what it only loaded itself it leaves nobody.
    bool has_resume_point() const {
        const auto commit = engine_->store()->newest_commit();
        return commit && (commit->attempts > 0 || is_resumed());
    }

    const MachineFile* card() const { return setup_.card ? &*setup_.card : nullptr; }
    bool is_emulated() const { return setup_.card.has_value(); }
    bool is_resumed() const { return setup_.saved.has_value(); }
    bool commits() const { return setup_.commit_at.has_value(); }
    const Placement& placement() const { return setup_.placed.placement; }
    const Progress& progress() const { return engine_->progress(); }
    std::string describe_step(int64_t done) const {
        return fmt::format("after step {} of {}", done, batches_.step_count());
    }

    const TrainInputs& inputs_;
    const RunConfig& config_;
    const TrainReporter& reporter_;
    const uint64_t ram_free_bytes_;  // before torch
    const HostThreads threads_;
    BatchPlan batches_;
    ResidentMemory baseline_;  // the program and torch, before the first slot
    RunSetup setup_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<CheckpointWriter> writer_;  // where a model is written
    std::optional<RunReport> report_;
    int64_t rested_at_ = 0;  // steps done when nothing was under way the last time
    int64_t begun_ = 0;      // steps begun
    WaitWatch waits_;
};

}  // namespace

Status train(const TrainInputs& inputs, const TrainReporter& reporter) {
    CHECK(reporter.note && reporter.warn && reporter.step);
    CHECK(reporter.evaluation && reporter.finished);
    CHECK(reporter.begin && reporter.stop_signal && reporter.stuck);
    CHECK(inputs.config.device != Device::cuda);
    return Training(inputs, reporter).run();
}

}  // namespace headrace::engine
