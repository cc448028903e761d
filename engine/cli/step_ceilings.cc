#include "engine/cli/step_ceilings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/cli/bench_adam.h"
#include "engine/cli/loops.h"
#include "engine/config/cores.h"
#include "engine/config/machine.h"
#include "engine/train/run_engine.h"
#include "offload/check.h"

namespace headrace::engine {

using nvme::DriveProbe;
using offload::LaneKind;
using offload::Result;

namespace {

constexpr uint64_t pool_bytes = 256 * offload::mib;
constexpr uint64_t file_bytes = 3 * offload::gib;  // as far over a drive as a step's own bytes
constexpr uint64_t updated_count = 64 << 20;       // more than caches hold
constexpr double seconds_of_measurement = 1.5;     // of each pattern
constexpr std::string_view update_row = "update and page sums";  // as a run that commits has it

}  // namespace

StepRates between(const StepRates& before, const StepRates& after) {
    return {
        .read_bytes = rate_of_both(before.read_bytes, after.read_bytes),
        .written_bytes = rate_of_both(before.written_bytes, after.written_bytes),
        .mixed_bytes = rate_of_both(before.mixed_bytes, after.mixed_bytes),
        .updated_parameters = rate_of_both(before.updated_parameters, after.updated_parameters)};
}

LongestLane longest_lane(const Rehearsal& rehearsal, const StepRates& rates) {
    const RehearsedStep& part = rehearsal.part;
    const auto alone_s = [&](LaneKind lane) {
        return part.forecast.alone_s[static_cast<size_t>(lane)];
    };
    CHECK_GT(rates.updated_parameters, 0.0);
    std::vector<LongestLane> lanes = {
        {"gpu", alone_s(LaneKind::gpu)},
        {"h2d", alone_s(LaneKind::h2d)},
        {"d2h", alone_s(LaneKind::d2h)},
        {"update", static_cast<double>(part.updated_parameter_count) / rates.updated_parameters}};
    if (rates.read_bytes > 0 && rates.written_bytes > 0) {
        const auto read = static_cast<double>(part.read_bytes);
        const auto written = static_cast<double>(part.written_bytes);
        const double in_turns_s = read / rates.read_bytes + written / rates.written_bytes;
        const double mixed_s = (read + written) / rates.mixed_bytes;
        lanes.push_back({"drives", std::min(in_turns_s, mixed_s)});
    }
    return std::ranges::max(lanes, {}, &LongestLane::seconds);
}

StepCeilings::StepCeilings(const RunConfig& config, Context context)
    : config_(config), context_(std::move(context)), memory_({.ram_capacity_bytes = pool_bytes}) {}

Result<std::unique_ptr<StepCeilings>> StepCeilings::make(const RunConfig& config, Context context) {
    std::unique_ptr<StepCeilings> made(new StepCeilings(config, std::move(context)));
    if (config.offload.nvme_paths.empty()) return made;
    const auto pool = made->memory_.take(offload::Tier::ram, pool_bytes);
    if (!pool) return pool.error();
    std::memset(pool->data(), 1, pool->size());
    auto probe = DriveProbe::open({.paths = config.offload.nvme_paths,
                                   .run_name = "bench.step",
                                   .size_bytes = file_bytes,
                                   .pool = *pool,
                                   .should_stop = made->context_.should_stop,
                                   .on_stuck = made->context_.on_stuck});
    if (!probe) return probe.error();
    made->probe_ = std::move(*probe);
    return made;
}

Result<StepRates> StepCeilings::measure() {
    StepRates rates;
    if (probe_) {
        const auto measured = probe_->measure_in_turns(seconds_of_measurement);
        if (!measured) return measured.error();
        rates.read_bytes = measured->read.bytes_per_s();
        rates.written_bytes = measured->write.bytes_per_s();
        rates.mixed_bytes = measured->mixed.bytes_per_s();
    }
    const BenchAdamCommand command{
        .parameter_counts = {updated_count},
        .thread_count = static_cast<uint32_t>(threads_of(config_).update_threads),
        .states = {config_.offload.optimizer_states},
        .weight_dtype = config_.dtype,
        .gradient_dtype = config_.offload.gradients,
        .row = {},
        .rounds = 1};
    const auto groups =
        bench_adam(command, {.core_count = static_cast<uint32_t>(usable_core_count()),
                             .free_bytes = read_machine().ram_free_bytes(),
                             .should_stop = context_.should_stop});
    if (!groups) return groups.error();
    CHECK_EQ(groups->size(), 1u);
    const auto& rows = groups->front().rows;
    const auto row = std::ranges::find(rows, update_row, &BenchRow::name);
    CHECK(row != rows.end());
    rates.updated_parameters = row->achieved * 1e9;
    return rates;
}

}  // namespace headrace::engine
