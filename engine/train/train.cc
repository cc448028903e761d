#include "engine/train/train.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "engine/config/cores.h"
#include "engine/config/lr_schedule.h"
#include "engine/config/machine.h"
#include "engine/torch/llama.h"
#include "engine/torch/threads.h"
#include "engine/train/engine.h"
#include "engine/train/placement.h"
#include "engine/train/resident.h"
#include "engine/train/sha256.h"
#include "kernels/host/slab.h"
#include "nvme/nvme_store.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;
using offload::Tier;

namespace {

// Bits may differ between versions of this number and of nothing else in the engine's code.
constexpr int numerics_version = 1;

// Of the folder's name in the store's name, which has a limit of its own.
constexpr size_t store_name_length_max = 40;

BatchOptions train_batches(const RunConfig& config) {
    return {.row_count = config.per_device_train_batch_size,
            .micro_batches_per_step = config.gradient_accumulation_steps,
            .epoch_count = config.num_train_epochs,
            .step_count = config.max_steps,
            .order = config.shuffle ? SampleOrder::shuffled : SampleOrder::as_given,
            .seed = config.seed};
}

BatchOptions eval_batches(const RunConfig& config, const Dataset& data) {
    const int64_t rows = config.per_device_eval_batch_size;
    return {.row_count = rows,
            .micro_batches_per_step = static_cast<int64_t>(offload::div_ceil(
                static_cast<uint64_t>(data.sample_count()), static_cast<uint64_t>(rows))),
            .epoch_count = 1,
            .step_count = {},
            .order = SampleOrder::by_length};
}

int thread_count_of(const std::optional<int64_t>& fixed, int64_t automatic) {
    return static_cast<int>(std::max<int64_t>(1, fixed.value_or(automatic)));
}

// Of the store: the same for every run of one output_dir, another for every other.
std::string run_name_of(const RunConfig& config) {
    std::filesystem::path folder = std::filesystem::absolute(config.output_dir).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();  // "runs/a/" is "runs/a"
    std::string name = folder.filename().string().substr(0, store_name_length_max);
    std::ranges::replace_if(
        name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-'; }, '_');
    const std::string path = folder.string();
    return fmt::format("{}-{:08x}", name, XXH3_64bits(path.data(), path.size()) >> 32);
}

nvme::IoEngine io_engine_of(IoEngine engine) {
    switch (engine) {
        case IoEngine::automatic: return nvme::IoEngine::automatic;
        case IoEngine::uring: return nvme::IoEngine::uring;
        case IoEngine::threads: return nvme::IoEngine::threads;
    }
    CHECK(false);
}

// One call of train(), in the order of its members.
class Training {
  public:
    Training(const TrainInputs& inputs, const TrainReporter& reporter)
        : inputs_(inputs),
          config_(inputs.config),
          reporter_(reporter),
          machine_(read_machine()),
          compute_threads_(
              thread_count_of(config_.offload.advanced.compute_threads, usable_core_count())),
          batches_(inputs.train_data, train_batches(config_)) {}

    ~Training() {
        const bool had_store = engine_ && engine_->store() != nullptr;
        engine_.reset();
        // The store is scratch until runs can be resumed from it.
        if (had_store) {
            const Status removed =
                nvme::remove_store(config_.offload.nvme_paths, run_name_of(config_));
            if (!removed) reporter_.warn(removed.error().text());
        }
    }

    Status run() {
        start_torch(compute_threads_);
        warm_up_torch();
        baseline_ = read_resident_memory();
        if (Status status = choose_placement(); !status) return status;
        const Result<Checkpoint> checkpoint = Checkpoint::open(inputs_.model_dir);
        if (!checkpoint) return checkpoint.error();
        const Status known = checkpoint->check_against(placement_.workload.layout.specs);
        if (!known) return known;
        if (Status status = make_engine(); !status) return status;
        if (Status status = make_writer(); !status) return status;
        for (const MicroBatchShape& shape : shapes_) {
            const Status status = engine_->try_shape(shape.row_count, shape.column_count);
            if (!status) return status;
        }
        if (Status status = engine_->load(*checkpoint); !status) return status;
        if (Status status = stop_if_asked("before the first step"); !status) return status;
        if (Status status = reporter_.begin(); !status) return status;
        auto metrics = MetricsFile::create(config_.output_dir + "/metrics.jsonl");
        if (!metrics) return metrics.error();
        metrics_ = std::make_unique<MetricsFile>(std::move(*metrics));
        if (Status status = turn_steps(); !status) return status;
        if (Status status = export_model(); !status) return status;
        return finish();
    }

  private:
    // The largest micro-batches: of training and, where there is one, of evaluation.
    std::vector<MicroBatchShape> largest_shapes() {
        std::vector<MicroBatchShape> shapes = {batches_.max_micro_batch_shape()};
        if (inputs_.eval_data != nullptr) {
            BatchPlan eval(*inputs_.eval_data, eval_batches(config_, *inputs_.eval_data));
            shapes.push_back(eval.max_micro_batch_shape());
        }
        return shapes;
    }

    Status choose_placement() {
        shapes_ = largest_shapes();
        // Slots are sized by the most tokens, the workspace by what needs most.
        const auto token_count = [](const MicroBatchShape& shape) {
            return shape.row_count * shape.column_count;
        };
        const MicroBatchShape largest = std::ranges::max(shapes_, {}, token_count);
        const LlamaCompute compute(inputs_.model, config_.dtype);
        uint64_t workspace_bytes = 0;
        for (const MicroBatchShape& shape : shapes_) {
            workspace_bytes = std::max(
                workspace_bytes, compute.workspace_bytes(shape.row_count, shape.column_count));
        }
        const Job job{.config = inputs_.model,
                      .micro_batch_count_max = batches_.micro_batch_count_of(0),  // the most of all
                      .row_count_max = largest.row_count,
                      .column_count_max = largest.column_count,
                      .workspace_bytes = workspace_bytes};
        auto placement = place(job, config_, {.available_bytes = machine_.ram_free_bytes()});
        if (!placement) return placement.error();
        placement_ = std::move(*placement);
        reporter_.note(numerics_record(inputs_, compute_threads_));
        for (const std::string& line : describe(placement_)) reporter_.note(line);
        return {};
    }

    Status make_engine() {
        const LrPlan lr = lr_plan_of(config_, batches_.step_count());
        EngineOptions options{
            .config = inputs_.model,
            .workload = placement_.workload,
            .plan = placement_.plan,
            .compute_threads = compute_threads_,
            .update_threads = thread_count_of(config_.offload.advanced.update_threads, 1),
            .adam_step_of =
                [lr, config = config_](int64_t update_index) {
                    return cpu_adam::AdamStep{.learning_rate = lr_at(lr, update_index),
                                              .beta1 = config.adam_beta1,
                                              .beta2 = config.adam_beta2,
                                              .epsilon = config.adam_epsilon,
                                              .weight_decay = config.weight_decay,
                                              .adam_step = static_cast<uint64_t>(update_index) + 1};
                },
            .max_grad_norm = config_.max_grad_norm,
            .update_row = &cpu_adam::best(),
            .reduce_row = &kernels::best_reduce_row()};
        options.open_store = [this](std::vector<offload::PlaceSpec> places,
                                    std::span<std::byte> buffers) {
            return open_store(std::move(places), buffers);
        };
        auto memory = std::make_unique<kernels::HostMemory>(
            kernels::HostMemory::Options{.gpu_capacity_bytes = placement_.budgets.gpu_bytes,
                                         .ram_capacity_bytes = placement_.budgets.ram_bytes});
        auto engine = Engine::create(std::move(options), std::move(memory));
        if (!engine) return engine.error();
        engine_ = std::move(*engine);
        return {};
    }

    Result<std::unique_ptr<offload::Store>> open_store(std::vector<offload::PlaceSpec> places,
                                                       std::span<std::byte> buffers) {
        auto store = nvme::open_store({.paths = config_.offload.nvme_paths,
                                       .run_name = run_name_of(config_),
                                       .places = std::move(places),
                                       .engine = io_engine_of(config_.offload.advanced.io_engine),
                                       .buffers = {buffers},
                                       .budget_bytes = placement_.budgets.nvme_bytes});
        if (!store) {
            return wrap(store.error(), fmt::format("opening the store '{}', named after output_dir",
                                                   run_name_of(config_)));
        }
        nvme_store_ = store->get();
        for (const std::string& note : nvme_store_->notes()) reporter_.warn(note);
        reporter_.note(fmt::format("nvme: {} on {} path{}", nvme_store_->engine_name(),
                                   nvme_store_->path_count(),
                                   nvme_store_->path_count() == 1 ? "" : "s"));
        return std::unique_ptr<offload::Store>(std::move(*store));
    }

    // --- steps ---------------------------------------------------------------------------------

    Status turn_steps() {
        const int64_t total = batches_.step_count();
        const int64_t stride = config_.eval_steps.value_or(total);
        if (Status status = evaluate(0); !status) return status;
        for (int64_t first = 0; first < total; first += stride) {
            const int64_t count = std::min(stride, total - first);
            const Status status = engine_->train(
                {.first_step = first,
                 .step_count = count,
                 .batch_of = [this](int64_t step) { return batches_.step(step); },
                 .micro_batch_count_of =
                     [this](int64_t step) { return batches_.micro_batch_count_of(step); },
                 .on_step = [this](const StepOutcome& outcome) { return report(outcome); }});
            if (!status) return status;
            if (Status evaluated = evaluate(first + count); !evaluated) return evaluated;
        }
        return {};
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
        const NvmeBytes moved = nvme_bytes();
        record.nvme_read_bytes = moved.read - moved_.read;
        record.nvme_write_bytes = moved.written - moved_.written;
        moved_ = moved;
        history_.add(std::as_bytes(std::span(&outcome.loss, 1)));
        history_.add(std::as_bytes(std::span(&outcome.grad_norm, 1)));
        if (record.step % config_.logging_steps == 0 || record.is_skipped) {
            reporter_.step(record, config_.gradient_accumulation_steps);
        }
        log(metrics_->append(record));
        if (Status status = count_skips(outcome); !status) return status;
        if (record.step == record.step_count) return {};
        return stop_if_asked(fmt::format("after step {} of {}", record.step, record.step_count));
    }

    Status stop_if_asked(const std::string& when) const {
        const int number = reporter_.stop_signal();
        CHECK_GE(number, 0);
        if (number == 0) return {};
        return Error{ErrorCode::failed,
                     fmt::format("stopped by signal {} {}; the weights of this run are not kept",
                                 number, when),
                     ""};
    }

    Status count_skips(const StepOutcome& outcome) {
        if (outcome.verdict == offload::Verdict::apply) {
            skipped_in_a_row_ = 0;
            return {};
        }
        ++skipped_count_;
        const bool is_masked = outcome.skip_reason == SkipReason::nothing_to_train;
        reporter_.warn(
            is_masked
                ? fmt::format("step {} has no trained token: no update", outcome.step + 1)
                : fmt::format("step {} skipped: the gradient of {} is not finite; weights and "
                              "states are unchanged",
                              outcome.step + 1, outcome.skip_tensor));
        if (is_masked || ++skipped_in_a_row_ <= skipped_steps_max) return {};
        return Error{ErrorCode::diverged,
                     fmt::format("{} steps in a row had gradients that are not finite, the last in "
                                 "{}; lower learning_rate, or look at the data of these steps",
                                 skipped_in_a_row_, outcome.skip_tensor),
                     ""};
    }

    Status evaluate(int64_t step) {
        if (inputs_.eval_data == nullptr) return {};
        const auto began = std::chrono::steady_clock::now();
        BatchPlan plan(*inputs_.eval_data, eval_batches(config_, *inputs_.eval_data));
        Result<EvalOutcome> outcome = engine_->evaluate(plan.step(0).micro_batches);
        if (!outcome) return outcome.error();
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - began;
        const EvalRecord record{.step = step,
                                .loss = outcome->loss,
                                .trained_token_count = outcome->trained_token_count,
                                .time_ms = time.count()};
        reporter_.evaluation(record);
        moved_ = nvme_bytes();  // evaluation's transfers are not the next step's
        log(metrics_->append(record));
        return {};
    }

    // --- the end -------------------------------------------------------------------------------

    // Taken before the first step, once the store has its space: a folder or a drive that cannot
    // take the model would tell so after hours, and the weights be lost.
    Status make_writer() {
        auto writer =
            CheckpointWriter::create({.folder = config_.output_dir + "/" + trained_model_folder,
                                      .source_folder = inputs_.model_dir,
                                      .layers = placement_.workload.layout.specs,
                                      .dtype = config_.dtype});
        if (!writer) return writer.error();
        writer_ = std::make_unique<CheckpointWriter>(std::move(*writer));
        return {};
    }

    Status export_model() {
        if (Status status = engine_->export_to(*writer_); !status) return status;
        return writer_->finish();
    }

    // A line that cannot be written (a full drive) must not cost the run its weights.
    void log(const Status& appended) {
        if (appended || is_log_lost_) return;
        is_log_lost_ = true;
        reporter_.warn(appended.error().text() + "; the run goes on");
    }

    struct NvmeBytes {
        uint64_t read = 0;
        uint64_t written = 0;
    };

    NvmeBytes nvme_bytes() const {
        NvmeBytes moved;
        if (nvme_store_ == nullptr) return moved;
        for (size_t path = 0; path < nvme_store_->path_count(); ++path) {
            const nvme::PathStatistics statistics = nvme_store_->statistics(path);
            moved.read += statistics.read_bytes;
            moved.written += statistics.write_bytes;
        }
        return moved;
    }

    Status finish() {
        const Result<HomesDigest> digest = engine_->digest();
        if (!digest) return digest.error();
        const uint64_t parameters = parameter_count(inputs_.model);
        const auto integer = [](uint64_t value) { return static_cast<int64_t>(value); };
        const uint64_t weight_bytes = bytes_of(config_.dtype, parameters);
        std::vector<Metric> metrics = {
            {"event", std::string("finished")},
            {"numerics", numerics_record(inputs_, compute_threads_)},
            {"weights_sha256", digest->weights_sha256},
            {"states_sha256", digest->states_sha256},
            {"history_sha256", history_.finish()},
            {"skipped_step_count", skipped_count_},
            {"peak_rss_bytes", integer(read_resident_memory().peak_bytes)},
            {"baseline_rss_bytes", integer(baseline_.peak_bytes)},
            {"gpu_bytes", integer(placement_.needs.gpu_bytes)},
            {"ram_bytes", integer(placement_.needs.ram_bytes)},
            {"nvme_bytes", integer(placement_.needs.nvme_bytes)},
            {"gpu_budget_bytes", integer(placement_.budgets.gpu_bytes)},
            {"ram_budget_bytes", integer(placement_.budgets.ram_bytes)},
            {"parameter_count", integer(parameters)},
            {"parameter_bytes", integer(weight_bytes)},
            {"gradient_bytes", integer(bytes_of(config_.offload.gradients, parameters))},
            {"state_bytes", integer(offload::opt_bytes(config_.dtype, parameters))},
            {"model_folder", config_.output_dir + "/" + trained_model_folder}};
        for (size_t lane = 0; lane < engine_->lane_times().size(); ++lane) {
            metrics.push_back(
                {fmt::format("busy_{}_ms", name_of(static_cast<offload::LaneKind>(lane))),
                 static_cast<double>(engine_->lane_times()[lane]) * 1e-6});
        }
        reporter_.finished(metrics);
        log(metrics_->append(metrics));
        return {};
    }

    const TrainInputs& inputs_;
    const RunConfig& config_;
    const TrainReporter& reporter_;
    const Machine machine_;
    const int compute_threads_;
    BatchPlan batches_;
    std::vector<MicroBatchShape> shapes_;
    Placement placement_;
    ResidentMemory baseline_;  // the program and torch, before the first slot
    std::unique_ptr<Engine> engine_;
    const nvme::NvmeStore* nvme_store_ = nullptr;  // the engine's
    std::unique_ptr<CheckpointWriter> writer_;
    std::unique_ptr<MetricsFile> metrics_;
    bool is_log_lost_ = false;
    NvmeBytes moved_;  // up to the last report
    Sha256 history_;   // losses and norms of all steps
    int64_t skipped_in_a_row_ = 0;
    int64_t skipped_count_ = 0;
};

}  // namespace

std::string numerics_record(const TrainInputs& inputs, int compute_threads) {
    const RunConfig& config = inputs.config;
    return fmt::format(
        "numerics {}: {}, {}, {} compute thread{}, gradients {}, micro-batches {} x {} rows, "
        "head chunk {}, states fp32, seed {}",
        numerics_version, torch_version(), matmul_description(config.dtype), compute_threads,
        compute_threads == 1 ? "" : "s", name_of(config.offload.gradients),
        config.gradient_accumulation_steps, config.per_device_train_batch_size,
        head_chunk_tokens(inputs.model), config.seed);
}

Status train(const TrainInputs& inputs, const TrainReporter& reporter) {
    CHECK(reporter.note && reporter.warn && reporter.step);
    CHECK(reporter.evaluation && reporter.finished);
    CHECK(reporter.begin && reporter.stop_signal);
    CHECK(inputs.config.device != Device::cuda);
    return Training(inputs, reporter).run();
}

}  // namespace headrace::engine
