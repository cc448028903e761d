#include "engine/train/host_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/config/mounts.h"
#include "engine/models/effort.h"
#include "engine/torch/block_shape.h"
#include "engine/torch/llama.h"
#include "engine/torch/workspace_bytes.h"
#include "offload/build.h"
#include "offload/numbers.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::format_bytes;
using offload::format_seconds;
using offload::LaneKind;
using offload::Result;

namespace {

constexpr size_t named_mounts_max = 3;

// A pretended card's workspace is that of the card, as in a plan.
uint64_t workspace_bytes(const HostRun& run, const LlamaCompute& compute,
                         const MicroBatchShape& shape) {
    if (run.card == nullptr) return compute.workspace_bytes(shape.row_count, shape.column_count);
    const LlamaConfig model = one_block_of(run.model);
    const BlockShape block =
        block_shape_of(model, run.config.dtype, shape.row_count, shape.column_count);
    return workspace_bytes_of(model, shape_on_card(block, run.config.offload.advanced.kernels));
}

// Slots are sized by the most tokens, the workspace by what needs most.
Job job_of(const HostRun& run) {
    const auto token_count = [](const MicroBatchShape& shape) {
        return shape.row_count * shape.column_count;
    };
    CHECK(!run.shapes.empty());
    const MicroBatchShape largest = std::ranges::max(run.shapes, {}, token_count);
    const LlamaCompute compute(one_block_of(run.model), run.config.dtype,
                               run.config.offload.advanced.kernels);
    uint64_t most_bytes = 0;
    for (const MicroBatchShape& shape : run.shapes) {
        most_bytes = std::max(most_bytes, workspace_bytes(run, compute, shape));
    }
    return {.config = run.model,
            .micro_batch_count_max = run.micro_batch_count_max,
            .row_count_max = largest.row_count,
            .column_count_max = largest.column_count,
            .workspace_bytes = most_bytes,
            .kept_bytes =
                compute.kept_bytes(run.shapes.front().row_count, run.shapes.front().column_count)};
}

offload::Machine machine_of(const HostRun& run) {
    offload::Machine machine = nominal_host(run.threads, run.config.dtype);
    if (run.machine != nullptr) {
        const offload::DriveRates assumed = machine.drive;
        machine = with_threads(in_dtype(*run.machine, run.config.dtype).machine, run.threads);
        if (machine.drive.read_bytes_per_s == 0) machine.drive = assumed;
    }
    return run.card == nullptr ? machine
                               : with_card(machine, in_dtype(*run.card, run.config.dtype).machine);
}

std::string rates_line(const HostRun& run) {
    const std::string card = run.card == nullptr ? "" : "; the card's of " + run.card->machine.name;
    if (run.machine == nullptr) {
        return "rates: nominal; headrace doctor --probe measures this machine" + card;
    }
    const bool has_drive = run.machine->machine.drive.read_bytes_per_s > 0;
    const bool needs_drive = !run.config.offload.nvme_paths.empty();
    const std::string whose =
        run.config.machine.empty()
            ? "as measured on this machine"
            : fmt::format("of {}, '{}'", run.machine->machine.name, run.config.machine);
    return fmt::format("rates: {}{}{}", whose,
                       needs_drive && !has_drive ? "; of the drives nominal" : "", card);
}

// With the parts that the saved run has, if nobody wants others: nothing is repacked then.
Result<Placement> place_as_saved(const Job& job, const HostRun& run, const Site& site) {
    if (run.saved_part_bytes && !run.config.offload.advanced.part_bytes) {
        RunConfig config = run.config;
        config.offload.advanced.part_bytes = run.saved_part_bytes;
        Result<Placement> as_saved = place(job, config, site);
        if (as_saved) return as_saved;
    }
    return place(job, run.config, site);
}

// A job that memory does not hold needs a drive: which ones have room for its store?
offload::Error with_mounts(offload::Error refusal, const Job& job, const HostRun& run) {
    if (refusal.code != offload::ErrorCode::does_not_fit) return refusal;
    if (!run.config.offload.nvme_paths.empty()) return refusal;
    const uint64_t parameters = parameter_count(job.config);
    const uint64_t store_bytes =
        2 * (bytes_of(run.config.dtype, parameters) +
             offload::opt_bytes(run.config.dtype, run.config.offload.optimizer_states,
                                offload::align_up(parameters, offload::block_elements)));
    std::vector<std::string> named;
    for (const Mount& mount : mounts_with_room(store_bytes)) {
        if (named.size() == named_mounts_max) break;
        named.push_back(fmt::format("{} ({} free)", mount.folder, format_bytes(mount.free_bytes)));
    }
    refusal.what += fmt::format(
        "; its store takes {}, for which there is room on {}", format_bytes(store_bytes),
        named.empty() ? "no drive of this machine" : fmt::format("{}", fmt::join(named, ", ")));
    return refusal;
}

double alone_s(const offload::Forecast& forecast, LaneKind lane) {
    return forecast.alone_s[static_cast<size_t>(lane)];
}

// "a step takes about 3.1 s, the card is busy 2.9 of it; 200 steps 10 minutes".
std::string step_line(const HostRun& run, const offload::Forecast& forecast) {
    constexpr std::pair<LaneKind, std::string_view> lanes[] = {
        {LaneKind::gpu, "computing"},
        {LaneKind::h2d, "copying to the card"},
        {LaneKind::d2h, "copying from the card"},
        {LaneKind::cpu, "updating"},
        {LaneKind::nvme_read, "reading the drives"},
        {LaneKind::nvme_write, "writing the drives"}};
    const auto [lane, words] =
        std::ranges::max(lanes, {}, [&](const auto& one) { return alone_s(forecast, one.first); });
    const double total_s = forecast.step_s * static_cast<double>(run.step_count);
    return fmt::format("predicted: a step {}, {} steps {}; bound by {}, which alone takes {}",
                       format_seconds(forecast.step_s), run.step_count,
                       offload::format_duration(total_s), words,
                       format_seconds(alone_s(forecast, lane)));
}

std::string job_line(const Job& job, const HostRun& run) {
    return fmt::format(
        "job: {} parameters in {}, {} steps of {} micro-batches of at most {} x {} "
        "tokens",
        offload::format_parameters(parameter_count(job.config)), name_of(run.config.dtype),
        run.step_count, run.micro_batch_count_max, run.shapes.front().row_count,
        run.shapes.front().column_count);
}

// The ceilings and the memory of a run whose card is emulated.
void add_card(HostRun& run) {
    OffloadConfig& offload = run.config.offload;
    const uint64_t free_bytes = run.memory.available_bytes;
    if (!offload.gpu_budget_bytes) offload.gpu_budget_bytes = run.card->ceilings.gpu_bytes;
    if (!offload.ram_budget_bytes) offload.ram_budget_bytes = ceiling_of_free(free_bytes);
    run.memory.available_bytes += run.card->ceilings.gpu_bytes;
}

}  // namespace

Result<HostPlacement> place_on_host(HostRun run) {
    CHECK_GE(run.step_count, 1);
    if (run.card != nullptr) add_card(run);
    const Job job = job_of(run);
    HostPlacement placed{
        .placement = {},
        .machine = machine_of(run),
        .effort = effort_of(job.config, job.row_count_max, job.column_count_max),
        .token_count_max = job.micro_batch_count_max * job.row_count_max * job.column_count_max,
        .lines = {}};
    Site site = site_of(run.config, run.memory, placed.machine);
    site.has_one_copy = run.has_one_copy;
    Result<Placement> placement = place_as_saved(job, run, site);
    if (!placement) return with_mounts(placement.error(), job, run);
    placed.placement = std::move(*placement);
    placed.lines = {job_line(job, run), rates_line(run)};
    for (std::string& line : describe(placed.placement)) placed.lines.push_back(std::move(line));
    placed.lines.push_back("commit: " + describe_commit(run.config, placed.placement.plan));
    placed.lines.push_back(step_line(run, placed.placement.forecast));
    return placed;
}

double predicted_step_s(const HostPlacement& placed, double token_count) {
    CHECK_GT(token_count, 0.0);
    CHECK_GT(placed.token_count_max, 0);
    const double share = std::min(1.0, token_count / static_cast<double>(placed.token_count_max));
    const auto schedule = build(placed.placement.workload, placed.placement.plan);
    CHECK(schedule.ok());
    return simulate(*schedule, placed.machine, scaled(placed.effort, share)).step_s;
}

}  // namespace headrace::engine
