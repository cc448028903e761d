#include "engine/cli/bench_adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "cpu_adam/pool.h"
#include "engine/cli/adam_stream.h"
#include "kernels/host/slab.h"
#include "offload/check.h"
#include "offload/fp16.h"
#include "offload/page_sum.h"
#include "offload/units.h"

namespace headrace::engine {

using cpu_adam::PartUpdate;
using offload::Dtype;
using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Result;
using offload::StateFormat;
using offload::Status;

namespace {

// The streams on small pages move at most this many parameters: memory is better used for size.
constexpr uint64_t small_page_elements_max = 64'000'000;

// The bytes of the arrays of one update, one behind another, each at a page as in a run's slots.
struct Sizes {
    uint64_t element_count = 0;
    uint64_t weight_bytes = 0;
    uint64_t state_bytes = 0;
    uint64_t gradient_bytes = 0;

    static uint64_t padded(uint64_t size_bytes) {
        return offload::align_up(size_bytes, offload::page_bytes);
    }
    uint64_t slab_bytes() const {
        return padded(weight_bytes) + padded(state_bytes) + padded(gradient_bytes);
    }
    // Moved by one update: all but the gradient is read and written.
    uint64_t traffic_bytes() const { return 2 * (weight_bytes + state_bytes) + gradient_bytes; }
    uint64_t weight_alone_bytes() const { return traffic_bytes() - state_bytes; }
};

Sizes sizes_of(const BenchAdamCommand& command, StateFormat format, uint64_t element_count) {
    return {.element_count = element_count,
            .weight_bytes = bytes_of(command.weight_dtype, element_count),
            .state_bytes = offload::opt_bytes(command.weight_dtype, format, element_count),
            .gradient_bytes = bytes_of(command.gradient_dtype, element_count)};
}

// The update of one part in memory of its own.
PartUpdate part_in(std::span<std::byte> slab, const BenchAdamCommand& command, StateFormat format,
                   const Sizes& sizes) {
    CHECK_GE(slab.size(), sizes.slab_bytes());
    const uint64_t state_offset_bytes = Sizes::padded(sizes.weight_bytes);
    const uint64_t gradient_offset_bytes = state_offset_bytes + Sizes::padded(sizes.state_bytes);
    PartUpdate part;
    part.element_count = sizes.element_count;
    part.weight_dtype = command.weight_dtype;
    part.format = format;
    part.gradient_dtype = command.gradient_dtype;
    part.weight = slab.subspan(0, sizes.weight_bytes);
    part.state = slab.subspan(state_offset_bytes, sizes.state_bytes);
    part.gradient = slab.subspan(gradient_offset_bytes, sizes.gradient_bytes);
    return part;
}

void put_value(Dtype dtype, float value, std::byte* target) {
    if (dtype == Dtype::fp32) {
        std::memcpy(target, &value, sizeof(value));
        return;
    }
    const uint16_t narrow =
        dtype == Dtype::bf16 ? offload::float_to_bf16(value) : offload::float_to_fp16(value);
    std::memcpy(target, &narrow, sizeof(narrow));
}

// Values around 0 of the size of `scale`, a seeded pattern repeated.
void fill_values(std::span<std::byte> bytes, Dtype dtype, float scale) {
    constexpr uint64_t pattern_elements = 1 << 16;
    std::mt19937 generator(1);
    std::vector<std::byte> pattern(bytes_of(dtype, pattern_elements));
    for (uint64_t i = 0; i < pattern_elements; ++i) {
        const float unit = static_cast<float>(generator() >> 8) * 0x1p-23f - 1;
        put_value(dtype, scale * unit, pattern.data() + bytes_of(dtype, i));
    }
    for (uint64_t first = 0; first < bytes.size(); first += pattern.size()) {
        const uint64_t size_bytes = std::min<uint64_t>(pattern.size(), bytes.size() - first);
        std::memcpy(bytes.data() + first, pattern.data(), size_bytes);
    }
}

enum class Kind : uint8_t { update, update_and_sums, weight_alone, in_cache, stream, triad };

// A row being measured.
struct Contestant {
    Kind kind = Kind::update;
    size_t group = 0;
    StreamLoop loop = StreamLoop::regular;
    kernels::Pages pages = kernels::Pages::huge;
    PartUpdate part{};
    uint64_t part_traffic_bytes = 0;
    std::vector<double> parameters_per_s{};
};

// A format of states at a number of parameters.
struct Group {
    StateFormat format = StateFormat::fp32;
    uint32_t thread_count = 1;
    Sizes sizes;
    cpu_adam::UpdatePool* pool = nullptr;
};

std::string_view name_of(kernels::Pages pages) {
    return pages == kernels::Pages::huge ? "huge pages" : "small pages";
}

std::string name_of(const Contestant& one) {
    if (one.kind == Kind::update) return "update";
    if (one.kind == Kind::update_and_sums) return "update and page sums";
    if (one.kind == Kind::weight_alone) return "the new weight alone";
    if (one.kind == Kind::in_cache) return "update, in cache";
    if (one.kind == Kind::triad) return "triad";
    return fmt::format("stream, {}, {}", name_of(one.loop), name_of(one.pages));
}

// What the executor takes of every range while it is in cache.
class PageSums {
  public:
    explicit PageSums(const PartUpdate& part) : part_(part) {}
    void add(const cpu_adam::ElementRange& range) {
        const cpu_adam::RangeSums sums = sums_of(part_, range);
        sum_ += sums.weight + sums.state;
    }

  private:
    const PartUpdate& part_;
    std::atomic<uint64_t> sum_ = 0;
};

// All formats and numbers of threads at one number of parameters.
class Bench {
  public:
    Bench(const BenchAdamCommand& command, const AdamBenchContext& context,
          const cpu_adam::Row& row, uint64_t element_count)
        : command_(command), context_(context), row_(row), element_count_(element_count) {}

    static uint64_t wanted_bytes(const BenchAdamCommand& command, uint64_t element_count);

    Status prepare();
    Status run_rounds();
    std::vector<AdamBenchGroup> groups() const;

  private:
    Result<std::span<std::byte>> take(uint64_t size_bytes, kernels::Pages pages);
    void add_group(StateFormat format, uint32_t thread_count, std::span<std::byte> huge);
    void update_once(const Contestant& one, PartUpdate part) const;
    double measure(const Contestant& one) const;
    double triad_gb_per_s(size_t group) const;
    BenchRow row_of(const Contestant& one) const;
    std::string title_of(const Group& group) const;

    const BenchAdamCommand& command_;
    const AdamBenchContext& context_;
    const cpu_adam::Row& row_;
    uint64_t element_count_;
    std::vector<std::unique_ptr<kernels::HostMemory>> memories_;
    std::vector<std::unique_ptr<cpu_adam::UpdatePool>> pools_;
    std::span<std::byte> small_;  // of small pages, shared by all streams
    std::span<std::byte> triad_;  // shared by all triads
    std::vector<Group> groups_;
    std::vector<Contestant> contestants_;
};

uint64_t small_page_elements(uint64_t element_count) {
    return std::min(element_count, small_page_elements_max);
}

PartUpdate triad_part(std::span<std::byte> slab, uint64_t element_count) {
    const uint64_t array_bytes = bytes_of(Dtype::fp32, element_count);
    CHECK_EQ(slab.size(), 3 * array_bytes);
    PartUpdate part;
    part.element_count = element_count;
    part.weight_dtype = Dtype::fp32;
    part.gradient_dtype = Dtype::fp32;
    part.weight = slab.first(array_bytes);
    part.state = slab.subspan(array_bytes);
    part.gradient = slab.last(array_bytes);  // not touched
    return part;
}

uint64_t triad_bytes(uint64_t element_count) {
    return triad_element_bytes * small_page_elements(element_count);
}

uint64_t small_page_bytes(const BenchAdamCommand& command, uint64_t element_count) {
    uint64_t size_bytes = 0;
    for (const StateFormat format : command.states) {
        const Sizes sizes = sizes_of(command, format, small_page_elements(element_count));
        size_bytes = std::max(size_bytes, sizes.slab_bytes());
    }
    return size_bytes;
}

uint64_t Bench::wanted_bytes(const BenchAdamCommand& command, uint64_t element_count) {
    uint64_t size_bytes = small_page_bytes(command, element_count) + triad_bytes(element_count);
    for (const StateFormat format : command.states) {
        size_bytes += sizes_of(command, format, element_count).slab_bytes();
    }
    return size_bytes;
}

Result<std::span<std::byte>> Bench::take(uint64_t size_bytes, kernels::Pages pages) {
    memories_.push_back(std::make_unique<kernels::HostMemory>(
        kernels::HostMemory::Options{.ram_capacity_bytes = size_bytes, .pages = pages}));
    return memories_.back()->take(offload::Tier::ram, size_bytes);
}

Status Bench::prepare() {
    std::vector<uint32_t> thread_counts = {1, context_.core_count};
    if (command_.thread_count > 0) thread_counts = {command_.thread_count};
    if (thread_counts.size() == 2 && thread_counts[1] == 1) thread_counts.pop_back();
    for (const uint32_t thread_count : thread_counts) {
        pools_.push_back(std::make_unique<cpu_adam::UpdatePool>(thread_count));
    }
    const auto small = take(small_page_bytes(command_, element_count_), kernels::Pages::small);
    if (!small) return small.error();
    small_ = *small;
    std::memset(small_.data(), 0, small_.size());
    const auto triad = take(triad_bytes(element_count_), kernels::Pages::huge);
    if (!triad) return triad.error();
    triad_ = *triad;
    std::memset(triad_.data(), 0, triad_.size());
    for (const StateFormat format : command_.states) {
        const Sizes sizes = sizes_of(command_, format, element_count_);
        const auto slab = take(sizes.slab_bytes(), kernels::Pages::huge);
        if (!slab) return slab.error();
        std::memset(slab->data(), 0, slab->size());
        const PartUpdate part = part_in(*slab, command_, format, sizes);
        fill_values(part.weight, command_.weight_dtype, 0.05f);
        const uint64_t gradient_offset_bytes = part.gradient.data() - slab->data();
        fill_values(slab->subspan(gradient_offset_bytes, sizes.gradient_bytes),
                    command_.gradient_dtype, 1e-3f);
        for (const uint32_t thread_count : thread_counts) add_group(format, thread_count, *slab);
    }
    return {};
}

void Bench::add_group(StateFormat format, uint32_t thread_count, std::span<std::byte> huge) {
    const auto has_count = [&](const auto& pool) { return pool->thread_count() == thread_count; };
    const auto pool = std::ranges::find_if(pools_, has_count);
    CHECK(pool != pools_.end());
    const Sizes sizes = sizes_of(command_, format, element_count_);
    const size_t group = groups_.size();
    groups_.push_back(
        {.format = format, .thread_count = thread_count, .sizes = sizes, .pool = pool->get()});
    const PartUpdate part = part_in(huge, command_, format, sizes);
    const auto add_update = [&](Kind kind) {
        contestants_.push_back({.kind = kind,
                                .group = group,
                                .part = part,
                                .part_traffic_bytes = sizes.traffic_bytes()});
    };
    add_update(Kind::update);
    add_update(Kind::update_and_sums);
    PartUpdate weight_alone = part;
    weight_alone.writes = cpu_adam::Writes::weight;
    contestants_.push_back({.kind = Kind::weight_alone,
                            .group = group,
                            .part = weight_alone,
                            .part_traffic_bytes = sizes.weight_alone_bytes()});
    add_update(Kind::in_cache);
    const Sizes small = sizes_of(command_, format, small_page_elements(element_count_));
    for (const StreamLoop loop : stream_loops) {
        contestants_.push_back({.kind = Kind::stream,
                                .group = group,
                                .loop = loop,
                                .part = part,
                                .part_traffic_bytes = sizes.traffic_bytes()});
        contestants_.push_back({.kind = Kind::stream,
                                .group = group,
                                .loop = loop,
                                .pages = kernels::Pages::small,
                                .part = part_in(small_, command_, format, small),
                                .part_traffic_bytes = small.traffic_bytes()});
    }
    contestants_.push_back({.kind = Kind::triad,
                            .group = group,
                            .part = triad_part(triad_, small_page_elements(element_count_)),
                            .part_traffic_bytes = triad_bytes(element_count_)});
}

// A late step, whose factors are those of most of a run.
void Bench::update_once(const Contestant& one, PartUpdate part) const {
    const cpu_adam::AdamStep step{.learning_rate = 1e-5, .weight_decay = 0.01, .adam_step = 1000};
    const Group& group = groups_[one.group];
    if (one.kind == Kind::stream) return group.pool->update(stream_row(one.loop), step, part);
    if (one.kind == Kind::in_cache) return group.pool->update(in_cache_row(row_), step, part);
    if (one.kind == Kind::triad) return group.pool->update(triad_row(), step, part);
    if (one.kind != Kind::update_and_sums) return group.pool->update(row_, step, part);
    PageSums sums(part);
    const std::function<void(cpu_adam::ElementRange)> add =
        [&sums](const cpu_adam::ElementRange& range) { sums.add(range); };
    part.on_updated = &add;
    group.pool->update(row_, step, part);
}

// Parameters per second, over as many updates as take long enough.
double Bench::measure(const Contestant& one) const {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    double seconds = 0;
    uint64_t update_count = 0;
    while (update_count == 0 || seconds < command_.seconds_min) {
        update_once(one, one.part);
        ++update_count;
        seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    return static_cast<double>(update_count * one.part.element_count) / seconds;
}

Status Bench::run_rounds() {
    // One more before the first: caches, page tables and states that are no longer zero.
    for (uint32_t round = 0; round <= command_.rounds; ++round) {
        if (context_.say) {
            context_.say(round == 0 ? fmt::format("warming up: {} rows", contestants_.size())
                                    : fmt::format("round {} of {}", round, command_.rounds));
        }
        for (const size_t index : order_of_round(round, contestants_.size())) {
            if (context_.should_stop && context_.should_stop()) {
                return stopped_bench();
            }
            Contestant& one = contestants_[index];
            const double measured = measure(one);
            if (round > 0) one.parameters_per_s.push_back(measured);
        }
    }
    return {};
}

double Bench::triad_gb_per_s(size_t group) const {
    for (const Contestant& one : contestants_) {
        if (one.kind != Kind::triad || one.group != group) continue;
        return median_of(one.parameters_per_s) / 1e9 * static_cast<double>(triad_element_bytes);
    }
    CHECK(false);
}

BenchRow Bench::row_of(const Contestant& one) const {
    const Group& group = groups_[one.group];
    BenchRow row{.name = name_of(one), .unit = "Gparam/s"};
    double parameter_bytes =
        static_cast<double>(one.part_traffic_bytes) / static_cast<double>(one.part.element_count);
    double scale = 1e-9;
    if (one.kind == Kind::triad) {
        // Its elements are no parameters: as many of those as it moves the bytes of.
        scale *= parameter_bytes;
        parameter_bytes = static_cast<double>(group.sizes.traffic_bytes()) /
                          static_cast<double>(group.sizes.element_count);
        scale /= parameter_bytes;
    }
    for (const double rate : one.parameters_per_s) row.samples.push_back(scale * rate);
    row.achieved = median_of(row.samples);
    const std::string row_name(one.kind == Kind::stream  ? "stream"
                               : one.kind == Kind::triad ? "triad"
                                                         : row_.name);
    row.facts = {{"states", std::string(name_of(group.format))},
                 {"weight", std::string(name_of(command_.weight_dtype))},
                 {"gradient", std::string(name_of(command_.gradient_dtype))},
                 {"parameters", one.part.element_count},
                 {"threads", uint64_t{group.thread_count}},
                 {"row", row_name},
                 {"pages", std::string(name_of(one.pages))},
                 {"bytes_per_parameter", parameter_bytes},
                 {"gb_per_s", row.achieved * parameter_bytes},
                 {"of_triad", row.achieved * parameter_bytes / triad_gb_per_s(one.group)}};
    return row;
}

std::string Bench::title_of(const Group& group) const {
    const double each = 1 / static_cast<double>(element_count_);
    return fmt::format(
        "{} parameters, states in {}, weight in {}, gradient in {}: {:.4g} bytes read and {:.4g} "
        "written per parameter; {}; {} thread{}",
        element_count_, name_of(group.format), name_of(command_.weight_dtype),
        name_of(command_.gradient_dtype),
        each * static_cast<double>(group.sizes.traffic_bytes() - group.sizes.weight_bytes -
                                   group.sizes.state_bytes),
        each * static_cast<double>(group.sizes.weight_bytes + group.sizes.state_bytes), row_.name,
        group.thread_count, group.thread_count == 1 ? "" : "s");
}

std::vector<AdamBenchGroup> Bench::groups() const {
    std::vector<AdamBenchGroup> groups;
    for (size_t group = 0; group < groups_.size(); ++group) {
        AdamBenchGroup made{.title = title_of(groups_[group]), .rows = {}};
        double ceiling = 0;
        std::string against;
        for (const Contestant& one : contestants_) {
            if (one.group != group) continue;
            made.rows.push_back(row_of(one));
            const BenchRow& row = made.rows.back();
            if (one.kind != Kind::stream || row.achieved <= ceiling) continue;
            ceiling = row.achieved;
            against = row.name;
        }
        for (BenchRow& row : made.rows) {
            if (row.name == name_of({.kind = Kind::weight_alone})) continue;
            row.ceiling = ceiling;
            row.against = against;
        }
        groups.push_back(std::move(made));
    }
    return groups;
}

Status check_fit(const BenchAdamCommand& command, const AdamBenchContext& context) {
    for (const uint64_t element_count : command.parameter_counts) {
        const uint64_t wanted_bytes = Bench::wanted_bytes(command, element_count);
        if (wanted_bytes <= context.free_bytes) continue;
        return Error{ErrorCode::does_not_fit,
                     fmt::format("{} parameters take {} of memory in this bench, and {} is free",
                                 element_count, format_bytes(wanted_bytes),
                                 format_bytes(context.free_bytes)),
                     "lower --parameters, or measure one of --states alone"};
    }
    return {};
}

}  // namespace

Result<std::vector<AdamBenchGroup>> bench_adam(const BenchAdamCommand& command,
                                               const AdamBenchContext& context) {
    CHECK(!command.parameter_counts.empty() && !command.states.empty());
    CHECK_GE(context.core_count, 1u);
    const cpu_adam::Row* row = &cpu_adam::best();
    if (!command.row.empty()) {
        const auto named = cpu_adam::by_name(command.row);
        if (!named) return named.error();
        row = *named;
    }
    if (Status fits = check_fit(command, context); !fits) return fits.error();
    std::vector<AdamBenchGroup> groups;
    for (const uint64_t element_count : command.parameter_counts) {
        if (context.say) context.say(fmt::format("{} parameters", element_count));
        Bench bench(command, context, *row, element_count);
        if (Status status = bench.prepare(); !status) return status.error();
        if (Status status = bench.run_rounds(); !status) return status.error();
        for (AdamBenchGroup& group : bench.groups()) groups.push_back(std::move(group));
    }
    return groups;
}

std::string text_of(const std::vector<AdamBenchGroup>& groups) {
    std::string text;
    for (const AdamBenchGroup& group : groups) {
        text += group.title + "\n" +
                table_of(group.rows, {{.fact = "gb_per_s", .title = "GB/s", .decimals = 1},
                                      {.fact = "of_triad", .title = "of triad", .decimals = 2}}) +
                "\n";
    }
    return text;
}

}  // namespace headrace::engine
