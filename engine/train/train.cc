#include "engine/train/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "engine/config/lr_schedule.h"
#include "engine/config/machine.h"
#include "engine/config/machine_file.h"
#include "engine/models/effort.h"
#include "engine/resume/run_store.h"
#include "engine/resume/store_room.h"
#include "engine/torch/llama.h"
#include "engine/torch/threads.h"
#include "engine/train/drive_watch.h"
#include "engine/train/host_placement.h"
#include "engine/train/resident.h"
#include "engine/train/run_batches.h"
#include "engine/train/run_engine.h"
#include "engine/train/run_identity.h"
#include "engine/train/step_report.h"
#include "engine/train/wait_watch.h"
#include "nvme/nvme_store.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;
using offload::Tier;

namespace {

// One call of train(), in the order of its members.
class Training {
  public:
    Training(const TrainInputs& inputs, const TrainReporter& reporter)
        : inputs_(inputs),
          config_(inputs.config),
          reporter_(reporter),
          machine_(read_machine()),
          threads_(threads_of(config_)),
          batches_(inputs.train_data, train_batches(config_)),
          waits_(inputs.drives.wait_told_every.value_or(wait_told_every_default),
                 [this](const std::string& line) {
                     if (reporter_.waiting) reporter_.waiting(line);
                 }) {}

    ~Training() {
        const bool has_store = engine_ && engine_->store() != nullptr;
        const bool removes_store = has_store && !keeps_store();
        engine_.reset();
        if (!removes_store) return;
        const Status removed =
            nvme::remove_store(config_.offload.nvme_paths, store_name_of(config_));
        if (!removed) reporter_.warn(removed.error().text());
    }

    Status run() {
        Status status = read_card();
        if (status) status = prepare();
        if (status) {
            status = turn_steps();
            say_where_time_went();
        }
        if (status && !card_) status = export_model();
        if (status) status = finish();
        if (!status) say_what_is_kept();
        return status;
    }

  private:
    // What resume_from_checkpoint would go on from. A commit of no step is one only where this
    // start went on from it: what it only loaded itself it leaves nobody.
    bool has_resume_point() const {
        if (!engine_ || engine_->store() == nullptr) return false;
        const auto commit = engine_->store()->newest_commit();
        return commit && (commit->attempts > 0 || saved_);
    }

    bool keeps_store() const { return has_resume_point() && !is_finished_ && !card_; }

    Status read_card() {
        if (config_.emulate.empty()) return {};
        auto card = load_machine(config_.emulate);
        if (!card) return card.error();
        card_ = std::move(*card);
        reporter_.warn(
            fmt::format("EMULATED {}: ops of the card take its time and compute nothing; drives, "
                        "updates and commits are real. No model will be written",
                        card_->machine.name));
        return {};
    }

    // All that comes before the first step.
    Status prepare() {
        start_torch(threads_.compute_threads);
        warm_up_torch();
        baseline_ = read_resident_memory();
        if (Status status = find_saved(); !status) return status;
        if (Status status = choose_placement(); !status) return status;
        const Result<Checkpoint> checkpoint = Checkpoint::open(inputs_.model_dir);
        if (!checkpoint) return checkpoint.error();
        const Status known = checkpoint->check_against(placement().workload.layout.specs);
        if (!known) return known;
        waits_.begin("looking at the model's files");
        if (Status status = identify(*checkpoint); !status) return status;
        waits_.begin("taking memory and opening the run's store");
        if (Status status = make_engine(); !status) return status;
        say_traffic();
        if (!card_) {
            if (Status status = make_writer(); !status) return status;
        }
        for (const MicroBatchShape& shape : shapes_) {
            const Status status = engine_->try_shape(shape.row_count, shape.column_count);
            if (!status) return status;
        }
        waits_.begin(saved_ ? "reading the run's weights and states back" : "loading the model");
        if (Status status = load(*checkpoint); !status) return status;
        waits_.end();
        if (Status status = stop_if_asked("before the first step"); !status) return status;
        if (Status status = reporter_.begin(); !status) return status;
        return open_metrics();
    }

    // --- what was there before -----------------------------------------------------------------

    Status find_saved() {
        Result<std::optional<SavedRun>> saved = find_saved_run(config_);
        if (!saved) return saved.error();
        saved_ = std::move(*saved);
        return {};
    }

    Status identify(const Checkpoint& checkpoint) {
        Result<Identity> identity =
            identity_of(inputs_, checkpoint, threads_.compute_threads, placement().part_bytes);
        if (!identity) return identity.error();
        identity_ = std::move(*identity);
        if (!saved_) return {};
        const Status same = check_same_run(
            saved_->saved.identity, identity_,
            config_.convert_optimizer_states ? StateConversion::allowed : StateConversion::refused);
        if (!same) return same;
        for (const std::string& change : recipe_changes(saved_->saved.identity, identity_)) {
            reporter_.warn("resuming with another recipe: " + change);
        }
        return check_not_beyond_the_end();
    }

    Status check_not_beyond_the_end() const {
        const int64_t done = saved_->saved.progress.attempts;
        if (done <= batches_.step_count()) return {};
        return Error{ErrorCode::usage,
                     fmt::format("the run in {} has done {} steps, and this start asks for {}",
                                 config_.output_dir, done, batches_.step_count()),
                     fmt::format("max_steps={} exports what is there, more goes on with it", done)};
    }

    Status load(const Checkpoint& checkpoint) {
        return saved_ ? engine_->resume(saved_->saved.progress) : engine_->load(checkpoint);
    }

    Status open_metrics() {
        const std::string path = config_.output_dir + "/metrics.jsonl";
        auto metrics = saved_ ? MetricsFile::resume(path, saved_->saved.progress.attempts)
                              : MetricsFile::create(path);
        if (!metrics) return metrics.error();
        metrics_ = std::make_unique<MetricsFile>(std::move(*metrics));
        return {};
    }

    // A run that ends before its end, for whatever reason, says what is left of it.
    void say_what_is_kept() const {
        if (!keeps_store()) return;
        reporter_.note(
            "what was committed is kept: resume_from_checkpoint=true goes on from there");
    }

    // --- placement and engine ------------------------------------------------------------------

    uint64_t drive_bytes() const {
        if (config_.offload.nvme_paths.empty()) return 0;
        const uint64_t result_bytes = bytes_of(config_.dtype, parameter_count(inputs_.model));
        return room_for_store(config_, card_ ? 0 : result_bytes);
    }

    HostRun host_run() {
        HostRun run{
            .config = config_,
            .model = inputs_.model,
            .shapes = shapes_,
            .micro_batch_count_max = batches_.micro_batch_count_of(0),  // the most of all
            .step_count = batches_.step_count(),
            .threads = threads_,
            .memory = {.available_bytes = machine_.ram_free_bytes(), .drive_bytes = drive_bytes()},
            .machine = inputs_.machine ? &*inputs_.machine : nullptr,
            .card = card_ ? &*card_ : nullptr,
            .saved_part_bytes = std::nullopt};
        if (!saved_) return run;
        run.saved_part_bytes = saved_->saved.identity.part_bytes;
        const std::vector<offload::PlaceSpec>& places = saved_->store.places;
        run.has_one_copy = !places.empty() && places[0].copies == offload::Copies::one;
        return run;
    }

    Status choose_placement() {
        shapes_ = largest_shapes(config_, inputs_.train_data, inputs_.eval_data);
        Result<HostPlacement> placed = place_on_host(host_run());
        if (!placed) return placed.error();
        placed_ = std::move(*placed);
        commit_at_ = commit_of(placement().plan);
        reporter_.note(describe(numerics_of(inputs_, threads_.compute_threads)));
        for (const std::string& line : placed_.lines) reporter_.note(line);
        say_short_steps();
        return {};
    }

    void say_short_steps() const {
        const int64_t last_of_epoch = batches_.steps_per_epoch() - 1;
        if (last_of_epoch >= batches_.step_count()) return;
        const int64_t count = batches_.micro_batch_count_of(last_of_epoch);
        const int64_t full = config_.gradient_accumulation_steps;
        if (count == full) return;
        reporter_.note(
            fmt::format("the last step of an epoch has {} of {} micro-batches: every "
                        "sample is used once, none is dropped or repeated",
                        count, full));
    }

    const Placement& placement() const { return placed_.placement; }

    bool has_loss_scale() const { return config_.dtype == offload::Dtype::fp16; }
    Status make_engine() {
        const LrPlan lr = lr_plan_of(config_, batches_.step_count());
        auto engine = engine::make_engine(
            {.config = config_,
             .model = inputs_.model,
             .placement = placement(),
             .threads = threads_,
             .largest_shape = shapes_.front(),
             .card = card_ ? &*card_ : nullptr,
             .learning_rate_of = [lr](int64_t update_index) { return lr_at(lr, update_index); },
             .record_of =
                 [this](const Progress& progress) { return record_of(identity_, progress); },
             .open_store =
                 [this](std::vector<offload::PlaceSpec> places, std::span<std::byte> buffers) {
                     return open_store(std::move(places), buffers);
                 },
             .on_op_done = reporter_.op_done});
        if (!engine) return engine.error();
        engine_ = std::move(*engine);
        return {};
    }

    Result<std::unique_ptr<offload::Store>> open_store(std::vector<offload::PlaceSpec> places,
                                                       std::span<std::byte> buffers) {
        auto store = open_run_store({.config = config_,
                                     .placement = placement(),
                                     .model = inputs_.model,
                                     .identity = identity_,
                                     .saved = saved_ ? &*saved_ : nullptr,
                                     .drive_cache = inputs_.drive_cache,
                                     .places = std::move(places),
                                     .buffers = buffers,
                                     .drives = inputs_.drives,
                                     .note = reporter_.note,
                                     .on_stuck = reporter_.stuck});
        if (!store) return store.error();
        for (const std::string& note : (*store)->notes()) reporter_.warn(note);
        const size_t path_count = (*store)->path_count();
        reporter_.note(fmt::format("nvme: {} on {} path{}", (*store)->engine_name(), path_count,
                                   path_count == 1 ? "" : "s"));
        drives_ = DriveWatch(**store);
        return std::unique_ptr<offload::Store>(std::move(*store));
    }

    void say_traffic() const {
        const uint64_t read = engine_->step_bytes(offload::LaneKind::nvme_read);
        const uint64_t written = engine_->step_bytes(offload::LaneKind::nvme_write);
        if (read + written == 0) return;
        reporter_.note(fmt::format(
            "nvme: a step reads {} and writes {}, {} in the whole run", offload::format_bytes(read),
            offload::format_bytes(written),
            offload::format_bytes(written * static_cast<uint64_t>(batches_.step_count()))));
    }

    // --- steps ---------------------------------------------------------------------------------

    Status turn_steps() {
        const int64_t total = batches_.step_count();
        const int64_t eval_stride = config_.eval_steps.value_or(total);
        const bool saves = commit_at_ == offload::CommitAt::saves;
        const int64_t save_stride = saves ? config_.save_steps.value_or(total) : total;
        int64_t done = engine_->progress().attempts;
        if (saved_) reporter_.note(fmt::format("resuming after step {} of {}", done, total));
        if (done % eval_stride == 0 || done == total) {
            if (Status status = evaluate(done); !status) return status;
        }
        while (done < total) {
            const int64_t end = std::min({total, done - done % eval_stride + eval_stride,
                                          done - done % save_stride + save_stride});
            if (Status status = train_to(end); !status) return status;
            done = engine_->progress().attempts;
            const bool is_stopping = done < total && wants_stop();  // and stays so
            if (saves && (is_stopping || done == total || done % save_stride == 0)) {
                if (Status status = save(); !status) return status;
            }
            if (is_stopping) {
                if (Status status = stop_if_asked(after_step(done)); !status) return status;
                return stop_at_write_limit(done);
            }
            CHECK_EQ(done, end);
            if (done % eval_stride != 0 && done != total) continue;
            if (Status status = evaluate(done); !status) return status;
        }
        return {};
    }

    Status train_to(int64_t end) {
        const int64_t done = engine_->progress().attempts;
        wait_for_step(done, end);
        Status status = engine_->train(
            {.step_count = end - done,
             .batch_of = [this](int64_t step) { return batches_.step(step); },
             .micro_batch_count_of =
                 [this](int64_t step) { return batches_.micro_batch_count_of(step); },
             .on_step =
                 [this, end](const StepOutcome& outcome) {
                     Status reported = report(outcome);
                     wait_for_step(outcome.step + 1, end);
                     return reported;
                 },
             .wants_stop = [this] { return wants_stop(); }});
        waits_.end();
        return status;
    }

    // For the step after `done` ones, or for the updates of the last before `end`.
    void wait_for_step(int64_t done, int64_t end) {
        const std::chrono::duration<double> usual(2 * placement().forecast.step_s);
        waits_.begin(done == end ? "finishing the updates of step " + std::to_string(done)
                                 : fmt::format("in step {} of {}", done + 1, batches_.step_count()),
                     std::chrono::duration_cast<WaitWatch::Duration>(usual));
    }

    bool wants_stop() const { return reporter_.stop_signal() != 0 || is_at_write_limit(); }

    Status save() {
        waits_.begin("saving " + after_step(engine_->progress().attempts));
        if (Status status = engine_->commit(); !status) return status;
        waits_.end();
        reporter_.note(fmt::format("saved {}", after_step(engine_->progress().attempts)));
        return {};
    }

    std::string after_step(int64_t done) const {
        return fmt::format("after step {} of {}", done, batches_.step_count());
    }

    // The drives would have taken more than they may after the two steps that can still be open.
    bool is_at_write_limit() const {
        const auto limit = config_.offload.nvme_write_limit_bytes;
        return limit && drives_.total().written + 2 * written_per_step_ > *limit;
    }

    Status stop_at_write_limit(int64_t done) const {
        CHECK(is_at_write_limit());
        return Error{ErrorCode::failed,
                     fmt::format("stopped {}: {} are written of the {} that nvme_write_limit "
                                 "allows, and a step writes {}",
                                 after_step(done), offload::format_bytes(drives_.total().written),
                                 offload::format_bytes(*config_.offload.nvme_write_limit_bytes),
                                 offload::format_bytes(written_per_step_)),
                     "raise the limit and resume, or place less on nvme"};
    }

    Status report(const StepOutcome& outcome) {
        StepRecord record{.step = outcome.step + 1,
                          .step_count = batches_.step_count(),
                          .epoch = outcome.counts.epoch,
                          .loss = outcome.loss,
                          .grad_norm = outcome.grad_norm,
                          .learning_rate = outcome.learning_rate,
                          .time_ms = static_cast<double>(outcome.time_ns) * 1e-6,
                          .token_count = outcome.counts.token_count,
                          .trained_token_count = outcome.counts.trained_token_count,
                          .masked_micro_batch_count = outcome.counts.masked_micro_batch_count};
        record.micro_batch_count = batches_.micro_batch_count_of(outcome.step);
        record.is_skipped = outcome.verdict == offload::Verdict::skip;
        if (has_loss_scale()) record.loss_scale = outcome.loss_scale;
        if (card_) record.emulated = card_->machine.name;
        for (const std::string& change : drives_.rate_changes()) reporter_.warn(change);
        step_ms_.push_back(record.time_ms);
        token_count_ += record.token_count;
        const MovedBytes moved = drives_.look();
        record.nvme_read_bytes = moved.read;
        record.nvme_write_bytes = moved.written;
        written_per_step_ = std::max(written_per_step_, moved.written);
        if (record.step % config_.logging_steps == 0 || record.is_skipped) {
            reporter_.step(record, config_.gradient_accumulation_steps);
        }
        log(metrics_->append(record));
        if (Status status = count_skips(outcome); !status) return status;
        if (record.step == record.step_count || commit_at_) return {};
        return stop_if_asked(after_step(record.step));
    }

    Status stop_if_asked(const std::string& when) const {
        const int number = reporter_.stop_signal();
        CHECK_GE(number, 0);
        if (number == 0) return {};
        return Error{ErrorCode::failed,
                     fmt::format("stopped by signal {} {}{}", number, when,
                                 commit_at_ ? "" : "; the weights of this run are not kept"),
                     ""};
    }

    Status count_skips(const StepOutcome& outcome) {
        if (outcome.verdict == offload::Verdict::apply) return {};
        const bool is_masked = outcome.skip_reason == SkipReason::nothing_to_train;
        reporter_.warn(
            is_masked
                ? fmt::format("step {} has no trained token: no update", outcome.step + 1)
                : fmt::format("step {} skipped: the gradient of {} is not finite; weights and "
                              "states are unchanged{}",
                              outcome.step + 1, outcome.skip_tensor, scale_after(outcome)));
        if (outcome.is_scale_exhausted) {
            return Error{ErrorCode::diverged,
                         fmt::format("the gradient of {} is not finite at step {}, with the loss "
                                     "scale at its minimum, {:g}",
                                     outcome.skip_tensor, outcome.step + 1, outcome.loss_scale),
                         "the numbers left fp16 without the scale's help: train in bf16, lower "
                         "learning_rate, or look at the data"};
        }
        // A scale that falls ends by itself: in a row, it can only fall so often.
        const bool is_falling = loss_scale_rule_of(config_).fixed_scale == 0;
        const int64_t in_a_row = outcome.progress.skipped_in_a_row;
        if (is_falling || in_a_row <= skipped_steps_max) return {};
        return Error{ErrorCode::diverged,
                     fmt::format("{} steps in a row had gradients that are not finite, the last in "
                                 "{}; lower learning_rate, or look at the data of these steps",
                                 in_a_row, outcome.skip_tensor),
                     ""};
    }

    // "; the loss scale falls from 65536 to 32768".
    std::string scale_after(const StepOutcome& outcome) const {
        const double after = outcome.progress.loss_scale.scale;
        if (!has_loss_scale()) return "";
        if (after == outcome.loss_scale) return fmt::format("; the loss scale stays {:g}", after);
        return fmt::format("; the loss scale falls from {:g} to {:g}", outcome.loss_scale, after);
    }

    Status evaluate(int64_t step) {
        if (inputs_.eval_data == nullptr) return {};
        const auto began = std::chrono::steady_clock::now();
        BatchPlan plan(*inputs_.eval_data, eval_batches(config_, *inputs_.eval_data));
        waits_.begin("evaluating " + after_step(step));
        Result<EvalOutcome> outcome = engine_->evaluate(plan.step(0).micro_batches);
        waits_.end();
        if (!outcome) return outcome.error();
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - began;
        const EvalRecord record{.step = step,
                                .loss = outcome->loss,
                                .trained_token_count = outcome->trained_token_count,
                                .time_ms = time.count(),
                                .emulated = card_ ? card_->machine.name : ""};
        reporter_.evaluation(record);
        drives_.look();  // evaluation's transfers are not the next step's
        log(metrics_->append(record));
        return {};
    }

    // --- the end -------------------------------------------------------------------------------

    void say_where_time_went() {
        const offload::StepRecorder& recorder = engine_->recorder();
        for (const std::string& line : describe_steps(recorder)) reporter_.note(line);
        const std::string& path = config_.offload.advanced.trace;
        if (path.empty()) return;
        const MicroBatchShape& shape = shapes_.front();
        const Status written =
            write_trace({.path = path,
                         .title = card_ ? "measured, EMULATED " + card_->machine.name : "measured",
                         .recorder = recorder,
                         .effort = effort_of(inputs_.model, shape.row_count, shape.column_count),
                         .machine = placed_.machine});
        if (!written) return reporter_.warn(written.error().text());
        reporter_.note(fmt::format("trace: {}, for ui.perfetto.dev", path));
    }

    // Taken before the first step, once the store has its space: a folder or a drive that cannot
    // take the model would tell so after hours, and the weights be lost.
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

    Status export_model() {
        waits_.begin(
            fmt::format("writing the model to {}/{}", config_.output_dir, trained_model_folder));
        if (Status status = engine_->export_to(*writer_); !status) return status;
        return writer_->finish();
    }

    // A line that cannot be written (a full drive) must not cost the run its weights.
    void log(const Status& appended) {
        if (appended || is_log_lost_) return;
        is_log_lost_ = true;
        reporter_.warn(appended.error().text() + "; the run goes on");
    }

    Status finish() {
        const uint64_t parameters = parameter_count(inputs_.model);
        const auto integer = [](uint64_t value) { return static_cast<int64_t>(value); };
        const uint64_t weight_bytes = bytes_of(config_.dtype, parameters);
        std::vector<Metric> metrics = {
            {"event", std::string("finished")},
            {"numerics", describe(identity_.numerics)},
            {"history_sha256", engine_->progress().history},
            {"skipped_step_count", engine_->progress().skipped_count},
            {"peak_rss_bytes", integer(read_resident_memory().peak_bytes)},
            {"baseline_rss_bytes", integer(baseline_.peak_bytes)},
            {"gpu_bytes", integer(placement().needs.gpu_bytes)},
            {"ram_bytes", integer(placement().needs.ram_bytes)},
            {"nvme_bytes", integer(placement().needs.nvme_bytes)},
            {"gpu_budget_bytes", integer(placement().budgets.gpu_bytes)},
            {"ram_budget_bytes", integer(placement().budgets.ram_bytes)},
            {"nvme_write_bytes_foretold",
             integer(engine_->step_bytes(offload::LaneKind::nvme_write))},
            {"parameter_count", integer(parameters)},
            {"parameter_bytes", integer(weight_bytes)},
            {"gradient_bytes", integer(bytes_of(config_.offload.gradients, parameters))},
            {"optimizer_states", std::string(name_of(config_.offload.optimizer_states))},
            {"state_bytes", integer(offload::opt_bytes(
                                config_.dtype, config_.offload.optimizer_states, parameters))},
            {"nvme_read_bytes_foretold",
             integer(engine_->step_bytes(offload::LaneKind::nvme_read))}};
        if (Status status = add_what_it_made(metrics); !status) return status;
        for (size_t lane = 0; lane < engine_->lane_times().size(); ++lane) {
            metrics.push_back(
                {fmt::format("busy_{}_ms", name_of(static_cast<offload::LaneKind>(lane))),
                 static_cast<double>(engine_->lane_times()[lane]) * 1e-6});
        }
        std::ranges::move(step_metrics(engine_->recorder()), std::back_inserter(metrics));
        std::ranges::move(drives_.metrics(), std::back_inserter(metrics));
        compare_with_plan(metrics);
        for (const std::string& line : drives_.lines()) reporter_.note(line);
        reporter_.finished(metrics);
        log(metrics_->append(metrics));
        is_finished_ = true;
        return {};
    }

    // How right the planner was: the median step, but for the first, which fills the rings.
    void compare_with_plan(std::vector<Metric>& metrics) {
        if (step_ms_.size() < 2) return;
        std::sort(step_ms_.begin() + 1, step_ms_.end());
        const double measured_ms = step_ms_[(step_ms_.size() + 1) / 2];
        const auto steps = static_cast<double>(step_ms_.size());
        const double tokens = std::max(1.0, static_cast<double>(token_count_) / steps);
        const double predicted_ms = 1e3 * foretold_step_s(placed_, tokens);
        metrics.push_back({"predicted_step_ms", predicted_ms});
        metrics.push_back({"measured_step_ms", measured_ms});
        reporter_.note(fmt::format(
            "predicted {:.3g} s a step, measured {:.3g} ({:.2f}){}", predicted_ms / 1e3,
            measured_ms / 1e3, measured_ms / predicted_ms,
            inputs_.machine ? "" : "; nominal rates, headrace doctor --probe measures them"));
    }

    Status add_what_it_made(std::vector<Metric>& metrics) {
        if (card_) {
            metrics.push_back({"emulated", card_->machine.name});
            return {};
        }
        waits_.begin("hashing weights and states");
        const Result<HomesDigest> digest = engine_->digest();
        waits_.end();
        if (!digest) return digest.error();
        metrics.push_back({"weights_sha256", digest->weights_sha256});
        metrics.push_back({"states_sha256", digest->states_sha256});
        metrics.push_back({"model_folder", config_.output_dir + "/" + trained_model_folder});
        return {};
    }

    const TrainInputs& inputs_;
    const RunConfig& config_;
    const TrainReporter& reporter_;
    const Machine machine_;
    std::optional<MachineFile> card_;  // that is emulated
    const HostThreads threads_;
    BatchPlan batches_;
    std::vector<MicroBatchShape> shapes_;
    HostPlacement placed_;
    std::optional<offload::CommitAt> commit_at_;  // of the placement
    ResidentMemory baseline_;                     // the program and torch, before the first slot
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<CheckpointWriter> writer_;
    std::unique_ptr<MetricsFile> metrics_;
    bool is_log_lost_ = false;
    DriveWatch drives_;
    std::vector<double> step_ms_;    // of the steps of this start
    int64_t token_count_ = 0;        // in them
    uint64_t written_per_step_ = 0;  // to nvme, the most so far
    std::optional<SavedRun> saved_;  // what is resumed
    Identity identity_;
    bool is_finished_ = false;
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
