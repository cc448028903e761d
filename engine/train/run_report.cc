#include "engine/train/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/models/effort.h"
#include "engine/train/run_engine.h"
#include "engine/train/step_report.h"
#include "engine/train/stop.h"
#include "offload/numbers.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::format_bytes;
using offload::LaneKind;
using offload::Status;

void RunReport::watch(const nvme::NvmeStore& store) {
    drives_ = DriveWatch(store);
    for (const std::string& note : store.notes()) run_.reporter.warn(note);
    const size_t path_count = store.path_count();
    run_.reporter.note(fmt::format("nvme: {} on {} path{}", store.engine_name(), path_count,
                                   path_count == 1 ? "" : "s"));
}

void RunReport::say_traffic(const Engine& engine) const {
    const uint64_t read_bytes = engine.step_bytes(LaneKind::nvme_read);
    const uint64_t written_bytes = engine.step_bytes(LaneKind::nvme_write);
    if (read_bytes + written_bytes == 0) return;
    const auto step_count = static_cast<uint64_t>(run_.batches.step_count());
    run_.reporter.note(fmt::format("nvme: a step reads {} and writes {}, {} in the whole run",
                                   format_bytes(read_bytes), format_bytes(written_bytes),
                                   format_bytes(written_bytes * step_count)));
}

Status RunReport::open(std::optional<int64_t> resumed_after) {
    const std::string path = config().output_dir + "/metrics.jsonl";
    auto metrics =
        resumed_after ? MetricsFile::resume(path, *resumed_after) : MetricsFile::create(path);
    if (!metrics) return metrics.error();
    metrics_ = std::make_unique<MetricsFile>(std::move(*metrics));
    drives_.look();  // what loading moved is not the first step's
    return {};
}

StepRecord RunReport::record_of(const StepOutcome& outcome) const {
    StepRecord record{.step = outcome.step + 1,
                      .step_count = run_.batches.step_count(),
                      .epoch = outcome.counts.epoch,
                      .loss = outcome.loss,
                      .grad_norm = outcome.grad_norm,
                      .learning_rate = outcome.learning_rate,
                      .time_ms = static_cast<double>(outcome.time_ns) * 1e-6,
                      .token_count = outcome.counts.token_count,
                      .trained_token_count = outcome.counts.trained_token_count,
                      .micro_batch_count = run_.batches.micro_batch_count_of(outcome.step),
                      .masked_micro_batch_count = outcome.counts.masked_micro_batch_count,
                      .is_skipped = outcome.verdict == offload::Verdict::skip,
                      .is_warm_up = std::ssize(step_ms_) < warm_up_step_count(),
                      .emulated = emulated()};
    if (has_loss_scale(config())) record.loss_scale = outcome.loss_scale;
    return record;
}

void RunReport::step(const StepOutcome& outcome) {
    StepRecord record = record_of(outcome);
    for (const std::string& change : drives_.rate_changes()) run_.reporter.warn(change);
    const MovedBytes moved = drives_.look_after_step();
    record.nvme_read_bytes = moved.read;
    record.nvme_write_bytes = moved.written;
    step_ms_.push_back(record.time_ms);
    token_count_ += record.token_count;
    if (record.step % config().logging_steps == 0 || record.is_skipped) {
        run_.reporter.step(record, config().gradient_accumulation_steps);
    }
    log(metrics_->append(record));
    if (!record.is_skipped) return;
    run_.reporter.warn(describe_skip(outcome, has_loss_scale(config())));
}

void RunReport::save(int64_t step) {
    look_at_rest();  // what it moved is not the next step's
    run_.reporter.note(fmt::format("saved after step {} of {}", step, run_.batches.step_count()));
}

void RunReport::evaluation(int64_t step, const EvalOutcome& outcome, double time_ms) {
    const EvalRecord record{.step = step,
                            .loss = outcome.loss,
                            .trained_token_count = outcome.trained_token_count,
                            .time_ms = time_ms,
                            .emulated = emulated()};
    run_.reporter.evaluation(record);
    drives_.look();  // what it moved is not the next step's
    log(metrics_->append(record));
}

void RunReport::say_where_steps_went(const Engine& engine) {
    const offload::StepRecorder& recorder = engine.recorder();
    for (const std::string& line : describe_steps(recorder)) run_.reporter.note(line);
    write_trace(
        {.path = config().offload.advanced.trace,
         .emulated = emulated(),
         .recorder = recorder,
         .effort = effort_of(run_.inputs.model, run_.shape.row_count, run_.shape.column_count),
         .machine = run_.placed.machine},
        run_.reporter.note, run_.reporter.warn);
}

void RunReport::finish(const RunEnd& end) {
    std::vector<Metric> metrics = facts_of(end);
    const LaneTimes& busy = end.engine.lane_times();
    for (size_t lane = 0; lane < busy.size(); ++lane) {
        metrics.push_back({fmt::format("busy_{}_ms", name_of(static_cast<LaneKind>(lane))),
                           static_cast<double>(busy[lane]) * 1e-6});
    }
    std::ranges::move(step_metrics(end.engine.recorder()), std::back_inserter(metrics));
    std::ranges::move(drives_.metrics(), std::back_inserter(metrics));
    compare_with_plan(metrics);
    for (const std::string& line : drives_.lines()) run_.reporter.note(line);
    run_.reporter.finished(metrics);
    log(metrics_->append(metrics));
}

int64_t RunReport::warm_up_step_count() const {
    return offload::warm_up_step_count(run_.placed.placement.plan);
}

// What the run was, took and made.
std::vector<Metric> RunReport::facts_of(const RunEnd& end) const {
    const Placement& placement = run_.placed.placement;
    const OffloadConfig& offload = config().offload;
    const uint64_t parameters = parameter_count(run_.inputs.model);
    const auto integer = [](uint64_t value) { return static_cast<int64_t>(value); };
    std::vector<Metric> metrics = {
        {"event", std::string("finished")},
        {"numerics", describe(end.identity.numerics)},
        {"history_sha256", end.engine.progress().history},
        {"skipped_step_count", end.engine.progress().skipped_count},
        {"peak_rss_bytes", integer(read_resident_memory().peak_bytes)},
        {"baseline_rss_bytes", integer(end.baseline.peak_bytes)},
        {"gpu_bytes", integer(placement.needs.gpu_bytes)},
        {"ram_bytes", integer(placement.needs.ram_bytes)},
        {"nvme_bytes", integer(placement.needs.nvme_bytes)},
        {"gpu_budget_bytes", integer(placement.budgets.gpu_bytes)},
        {"ram_budget_bytes", integer(placement.budgets.ram_bytes)},
        {"predicted_nvme_write_bytes", integer(end.engine.step_bytes(LaneKind::nvme_write))},
        {"parameter_count", integer(parameters)},
        {"parameter_bytes", integer(bytes_of(config().dtype, parameters))},
        {"gradient_bytes", integer(bytes_of(offload.gradients, parameters))},
        {"optimizer_states", std::string(name_of(offload.optimizer_states))},
        {"state_bytes",
         integer(offload::opt_bytes(config().dtype, offload.optimizer_states, parameters))},
        {"predicted_nvme_read_bytes", integer(end.engine.step_bytes(LaneKind::nvme_read))}};
    if (!end.identity.moves.empty()) {
        metrics.push_back({"moves", fmt::format("{}", fmt::join(end.identity.moves, "; "))});
    }
    if (!end.digest) {
        metrics.push_back({"emulated", emulated()});
        return metrics;
    }
    metrics.push_back({"weights_sha256", end.digest->weights_sha256});
    metrics.push_back({"states_sha256", end.digest->states_sha256});
    metrics.push_back({"model_folder", config().output_dir + "/" + trained_model_folder});
    return metrics;
}

// How right the planner was: the median of the steps after the warm-up, or, of a run that ended in
// it, of all but the first.
void RunReport::compare_with_plan(std::vector<Metric>& metrics) const {
    if (step_ms_.size() < 2) return;
    const int64_t warm_up = warm_up_step_count();
    const int64_t skipped = std::ssize(step_ms_) > warm_up ? warm_up : 1;
    std::vector<double> sorted_ms(step_ms_.begin() + skipped, step_ms_.end());
    std::ranges::sort(sorted_ms);
    const double measured_ms = sorted_ms[sorted_ms.size() / 2];
    const double tokens =
        std::max(1.0, static_cast<double>(token_count_) / static_cast<double>(step_ms_.size()));
    const double predicted_ms = 1e3 * predicted_step_s(run_.placed, tokens);
    metrics.push_back({"predicted_step_ms", predicted_ms});
    metrics.push_back({"measured_step_ms", measured_ms});
    run_.reporter.note(fmt::format(
        "predicted {} a step, measured {}: {} of predicted{}",
        offload::format_seconds(predicted_ms / 1e3), offload::format_seconds(measured_ms / 1e3),
        offload::format_number(measured_ms / predicted_ms),
        run_.inputs.machine ? "" : "; nominal rates, headrace doctor --probe measures them"));
}

void RunReport::log(const Status& appended) {
    if (appended || is_log_lost_) return;
    is_log_lost_ = true;
    run_.reporter.warn(appended.error().text() + "; the run goes on");
}

}  // namespace headrace::engine
