#include "engine/cli/bench_link.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/cli/loops.h"
#include "engine/cli/update_load.h"
#include "kernels/host/copy.h"
#include "kernels/host/slab.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Result;
using offload::Status;
using offload::Tier;

namespace {

// One direction: blocks of `source` go to `target`, one a call, round and round.
struct Direction {
    std::span<std::byte> target;
    std::span<const std::byte> source;
    uint64_t block_bytes = 0;
    uint64_t next_offset_bytes = 0;

    double copy() {
        kernels::copy_bytes(target.subspan(next_offset_bytes, block_bytes),
                            source.subspan(next_offset_bytes, block_bytes));
        next_offset_bytes += block_bytes;
        if (next_offset_bytes + block_bytes > source.size()) next_offset_bytes = 0;
        return static_cast<double>(block_bytes);
    }
};

// Per round.
struct Samples {
    std::vector<double> h2d, d2h, both, both_beside, update, update_beside, stream;
};

// Of one tier: what goes and what comes.
uint64_t slab_bytes(const BenchLinkCommand& command) {
    return offload::align_up(2 * command.size_bytes, offload::page_bytes);
}

class Bench {
  public:
    Bench(const BenchLinkCommand& command, const LinkBenchContext& context)
        : command_(command),
          context_(context),
          memory_({.gpu_capacity_bytes = slab_bytes(command),
                   .ram_capacity_bytes = slab_bytes(command)}) {}

    static UpdateLoad::Options load_of(const BenchLinkCommand& command, uint32_t core_count) {
        return {.update_thread_count = command.update_thread_count,
                .stream_thread_count = core_count};
    }

    Status prepare();
    Status run_rounds();
    LinkBench result() const;

  private:
    void run_round(Samples& samples);

    const BenchLinkCommand& command_;
    const LinkBenchContext& context_;
    kernels::HostMemory memory_;
    std::unique_ptr<UpdateLoad> load_;
    Direction h2d_;
    Direction d2h_;
    Samples samples_;
};

Status Bench::prepare() {
    const auto card = memory_.take(Tier::gpu, slab_bytes(command_));
    if (!card) return card.error();
    const auto ram = memory_.take(Tier::ram, slab_bytes(command_));
    if (!ram) return ram.error();
    std::memset(card->data(), 1, card->size());
    std::memset(ram->data(), 2, ram->size());
    const uint64_t half_bytes = command_.size_bytes;  // the rest fills up a page
    h2d_ = {.target = card->first(half_bytes),
            .source = ram->first(half_bytes),
            .block_bytes = command_.block_bytes};
    d2h_ = {.target = ram->last(half_bytes),
            .source = card->last(half_bytes),
            .block_bytes = command_.block_bytes};
    Result<std::unique_ptr<UpdateLoad>> load =
        UpdateLoad::make(load_of(command_, context_.core_count));
    if (!load) return load.error();
    load_ = std::move(*load);
    return {};
}

void Bench::run_round(Samples& samples) {
    const double seconds_min = command_.seconds_min;
    const std::array<Loop, 3> all = {[this] { return h2d_.copy(); }, [this] { return d2h_.copy(); },
                                     [this] { return load_->update(); }};
    samples.h2d.push_back(rate_alone(all[0], seconds_min));
    samples.d2h.push_back(rate_alone(all[1], seconds_min));
    samples.stream.push_back(rate_alone([this] { return load_->stream(); }, seconds_min));
    const std::vector<double> both = rates_beside(std::span(all).first(2), seconds_min);
    samples.both.push_back(both[0] + both[1]);
    samples.update.push_back(rate_alone(all[2], seconds_min));
    const std::vector<double> beside = rates_beside(all, seconds_min);
    samples.both_beside.push_back(beside[0] + beside[1]);
    samples.update_beside.push_back(beside[2]);
}

Status Bench::run_rounds() {
    Samples warm_up;
    run_round(warm_up);
    for (uint32_t round = 1; round <= command_.rounds; ++round) {
        if (context_.should_stop && context_.should_stop()) {
            return stopped_bench();
        }
        if (context_.say) context_.say(fmt::format("round {} of {}", round, command_.rounds));
        run_round(samples_);
    }
    return {};
}

LinkBench Bench::result() const {
    const auto row = [&](const char* name, const char* unit, const std::vector<double>& samples) {
        BenchRow made{.name = name, .unit = unit};
        for (const double sample : samples) made.samples.push_back(sample / 1e9);
        made.achieved = median_of(made.samples);
        made.facts = {{"block_bytes", command_.block_bytes},
                      {"update_threads", uint64_t{command_.update_thread_count}}};
        return made;
    };
    LinkBench bench;
    bench.copies = {row("ram to card", "GB/s", samples_.h2d),
                    row("card to ram", "GB/s", samples_.d2h),
                    row("both ways at once", "GB/s", samples_.both),
                    row("both ways beside an update", "GB/s", samples_.both_beside)};
    bench.updates = {row("update", "Gparam/s", samples_.update),
                     row("update beside both ways", "Gparam/s", samples_.update_beside)};
    const double stream = median_of(samples_.stream);
    for (BenchRow& copy : bench.copies) {
        copy.ceiling = stream / 2 / 1e9;
        copy.against = fmt::format("half of the stream of {} cores", context_.core_count);
    }
    bench.updates[1].ceiling = bench.updates[0].achieved;
    bench.updates[1].against = "update";
    bench.figures = {.h2d_bytes_per_s = median_of(samples_.h2d),
                     .d2h_bytes_per_s = median_of(samples_.d2h),
                     .both_bytes_per_s = median_of(samples_.both),
                     .both_beside_bytes_per_s = median_of(samples_.both_beside),
                     .update_parameters_per_s = median_of(samples_.update),
                     .update_beside_parameters_per_s = median_of(samples_.update_beside),
                     .stream_bytes_per_s = stream};
    return bench;
}

}  // namespace

Result<LinkBench> bench_link(const BenchLinkCommand& command, const LinkBenchContext& context) {
    CHECK_GE(context.core_count, 1u);
    CHECK_GE(command.block_bytes, 1u);
    CHECK_LE(command.block_bytes, command.size_bytes);
    const uint64_t wanted_bytes =
        4 * command.size_bytes + UpdateLoad::wanted_bytes(Bench::load_of(command, 1));
    if (wanted_bytes > context.free_bytes) {
        return Error{ErrorCode::does_not_fit,
                     fmt::format("{} each way take {} of memory in this bench, and {} is free",
                                 format_bytes(command.size_bytes), format_bytes(wanted_bytes),
                                 format_bytes(context.free_bytes)),
                     "lower --size"};
    }
    Bench bench(command, context);
    if (Status status = bench.prepare(); !status) return status.error();
    if (Status status = bench.run_rounds(); !status) return status.error();
    return bench.result();
}

std::string text_of(const LinkBench& bench) {
    return table_of(bench.copies, {}) + "\n" + table_of(bench.updates, {}) + "\n";
}

}  // namespace headrace::engine
