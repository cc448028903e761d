#include "engine/train/run_engine.h"

#include <algorithm>
#include <utility>

#include "cpu_adam/variants.h"
#include "engine/config/cores.h"
#include "kernels/host/slab.h"

namespace headrace::engine {

using offload::Result;

namespace {

int thread_count_of(const std::optional<int64_t>& fixed, int64_t automatic) {
    return static_cast<int>(std::max<int64_t>(1, fixed.value_or(automatic)));
}

Result<std::unique_ptr<offload::Store>> open_store_of(const RunEngine& run,
                                                      std::vector<offload::PlaceSpec> places,
                                                      std::span<std::byte> buffers) {
    auto store = open_run_store({.config = run.config,
                                 .placement = run.placement,
                                 .model = run.model,
                                 .identity = run.identity,
                                 .saved = run.saved,
                                 .drive_cache = run.drive_cache,
                                 .places = std::move(places),
                                 .buffers = buffers,
                                 .drives = run.drives,
                                 .note = run.note,
                                 .on_stuck = run.on_stuck,
                                 .should_stop = run.should_stop});
    if (!store) return store.error();
    if (offload::Status status = run.on_store_opened(**store); !status) return status.error();
    return std::unique_ptr<offload::Store>(std::move(*store));
}

}  // namespace

HostThreads threads_of(const RunConfig& config) {
    const AdvancedConfig& advanced = config.offload.advanced;
    const int64_t core_count = usable_core_count();
    return {.compute_threads = thread_count_of(advanced.compute_threads, core_count),
            .update_threads = thread_count_of(advanced.update_threads, 1),
            .core_count = static_cast<int>(core_count)};
}

bool has_loss_scale(const RunConfig& config) {
    return config.dtype == offload::Dtype::fp16;
}

LossScaleRule loss_scale_rule_of(const RunConfig& config) {
    return has_loss_scale(config) ? config.loss_scale : unscaled;
}

Result<std::unique_ptr<Engine>> make_engine(RunEngine run) {
    const RunConfig& config = run.config;
    EngineOptions options{
        .config = run.model,
        .workload = run.placement.workload,
        .plan = run.placement.plan,
        .compute_threads = run.threads.compute_threads,
        .kernels = config.offload.advanced.kernels,
        .update_threads = run.threads.update_threads,
        .adam_step_of =
            [rate_of = std::move(run.learning_rate_of), config](int64_t update_index) {
                return cpu_adam::AdamStep{.learning_rate = rate_of(update_index),
                                          .beta1 = config.adam_beta1,
                                          .beta2 = config.adam_beta2,
                                          .epsilon = config.adam_epsilon,
                                          .weight_decay = config.weight_decay,
                                          .adam_step = static_cast<uint64_t>(update_index) + 1};
            },
        .record_of =
            [&identity = run.identity, saved = run.saved](const Progress& progress) {
                if (saved == nullptr) return record_of(identity, progress);
                return record_of(identity_after(progress.attempts, saved->saved, identity),
                                 progress);
            },
        .max_grad_norm = config.max_grad_norm,
        .loss_scale = loss_scale_rule_of(config),
        .rounding_seed = config.seed,
        .update_row = &cpu_adam::best(),
        .reduce_row = &kernels::best_reduce_row(),
        .open_store =
            [&run](std::vector<offload::PlaceSpec> places, std::span<std::byte> buffers) {
                return open_store_of(run, std::move(places), buffers);
            },
        .on_op_done = std::move(run.on_op_done)};
    options.is_serial = !config.offload.advanced.overlap;
    if (run.card != nullptr) {
        options.emulated_card = {.machine = run.card->machine,
                                 .row_count_max = run.largest_shape.row_count,
                                 .column_count_max = run.largest_shape.column_count};
    }
    auto memory = std::make_unique<kernels::HostMemory>(
        kernels::HostMemory::Options{.gpu_capacity_bytes = run.placement.budgets.gpu_bytes,
                                     .ram_capacity_bytes = run.placement.budgets.ram_bytes,
                                     .card = run.card != nullptr ? kernels::CardMemory::addresses
                                                                 : kernels::CardMemory::memory});
    return Engine::create(std::move(options), std::move(memory));
}

}  // namespace headrace::engine
