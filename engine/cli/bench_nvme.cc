#include "engine/cli/bench_nvme.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "kernels/host/slab.h"
#include "nvme/drive_cache.h"
#include "nvme/placement.h"
#include "nvme/probe.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using nvme::Buffers;
using nvme::Drive;
using nvme::DriveProbe;
using nvme::IoEngine;
using nvme::Measured;
using nvme::Pattern;
using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Result;
using offload::Status;

namespace {

constexpr uint64_t pool_bytes_wanted = 256 * offload::mib;
constexpr double slow_pass_seconds = 5;  // a drive that needs longer for its file need not finish
constexpr uint64_t pool_bytes_max = 4 * offload::gib;
// A drive serves what it is asked for: more than this from elsewhere, and it is not its speed.
constexpr double cached_share_max = 0.01;

// A row being measured: one pattern on one probe.
struct Contestant {
    DriveProbe* probe = nullptr;
    std::string path;  // or all of them
    std::string engine;
    std::string name_end{};  // ", weights 3 : 1"
    Pattern pattern = Pattern::read;
    Buffers buffers = Buffers::whole_pool;
    bool is_raw = false;  // DriveProbe::read_raw
    std::vector<Measured> measured{};
    uint64_t written_before_bytes = 0;  // to the drives, before the first one

    double gb_per_s() const {
        std::vector<double> samples;
        for (const Measured& one : measured) samples.push_back(one.bytes_per_s() / 1e9);
        return median_of(std::move(samples));
    }
};

// The most of any round; nothing: nothing was read, or the kernel keeps no account.
std::optional<double> cached_share_of(const Contestant& one) {
    std::optional<double> most;
    for (const Measured& measured : one.measured) {
        if (measured.cached_share) most = std::max(most.value_or(0), *measured.cached_share);
    }
    return most;
}

std::string text_of(Buffers buffers, uint64_t pool_bytes) {
    return buffers == Buffers::small_pool ? "few buffers" : format_bytes(pool_bytes) + " pool";
}

std::string weights_text(const std::vector<uint32_t>& weights) {
    return fmt::format("weights {}", fmt::join(weights, " : "));
}

class Bench {
  public:
    Bench(const BenchNvmeCommand& command, const NvmeBenchContext& context)
        : command_(command), context_(context) {
        for (const std::string& path : command.paths) {
            facts_.push_back(nvme::read_drive_facts(path));
        }
    }

    Status take_pool();
    Status choose_engines();
    Status open_probes();
    Status measure_alone();
    Status measure_what_lasts();
    Status measure_together();
    Status verify();
    Status remember();
    std::vector<NvmeBenchGroup> groups() const;

  private:
    Result<std::unique_ptr<DriveProbe>> open(const std::vector<std::string>& paths, IoEngine engine,
                                             const std::string& run_name,
                                             const std::vector<uint32_t>& weights);
    Status run_rounds(std::vector<Contestant>& contestants);
    uint64_t written_bytes(const std::string& path) const;
    std::optional<double> alone_gb_per_s(const std::string& path, Pattern pattern) const;
    Status add_together(const std::vector<uint32_t>& weights, const std::string& run_name);
    BenchRow row_of(const Contestant& contestant, const nvme::DriveFacts* facts,
                    const Drive* drive) const;
    void add_lasting_rows(size_t path, NvmeBenchGroup& group) const;
    void add_how_it_was_measured(size_t path, NvmeBenchGroup& group) const;
    std::optional<double> worst_cached_share(size_t path) const;
    bool is_device_speed(size_t path) const;
    NvmeBenchGroup group_of_path(size_t path) const;
    NvmeBenchGroup group_of_all() const;
    void say(const std::string& line) const {
        if (context_.say) context_.say(line);
    }

    const BenchNvmeCommand& command_;
    const NvmeBenchContext& context_;
    std::vector<nvme::DriveFacts> facts_;  // per path
    kernels::HostMemory memory_{{.ram_capacity_bytes = pool_bytes_max}};
    std::span<std::byte> pool_;
    std::vector<IoEngine> engines_;  // the first is the one a run would use
    std::vector<std::string> notes_;
    std::vector<std::unique_ptr<DriveProbe>>
        probes_;  // per path: one of each engine; then together
    std::vector<Contestant> alone_;
    std::vector<Contestant> together_;
    std::vector<Drive> drives_;                           // per path, once measured
    std::vector<uint64_t> lasting_written_before_bytes_;  // per path
    std::vector<uint64_t> verified_bytes_;                // per path, of its last probe
};

Status Bench::take_pool() {
    const nvme::ProbeOptions largest{
        .paths = command_.paths, .block_bytes = command_.block_bytes, .depth = command_.depth};
    const uint64_t wanted_bytes = offload::align_up(
        std::max(pool_bytes_wanted, DriveProbe::pool_bytes_min(largest)), kernels::huge_page_bytes);
    if (wanted_bytes > pool_bytes_max) {
        return Error{
            ErrorCode::usage,
            fmt::format("{} blocks of {} in flight on each of {} paths take {} of buffers",
                        command_.depth, format_bytes(command_.block_bytes), command_.paths.size(),
                        format_bytes(wanted_bytes)),
            fmt::format("lower --depth or --block; the most is {}", format_bytes(pool_bytes_max))};
    }
    const auto taken = memory_.take(offload::Tier::ram, wanted_bytes);
    if (!taken) return taken.error();
    pool_ = *taken;
    return {};
}

Status Bench::choose_engines() {
    if (command_.engine != IoEngine::threads) {
        const Status usable = nvme::probe_io_uring();
        if (!usable && command_.engine == IoEngine::uring) return usable.error();
        if (usable) engines_.push_back(IoEngine::uring);
        if (!usable) notes_.push_back("threads only: " + usable.error().text());
    }
    if (command_.engine != IoEngine::uring) engines_.push_back(IoEngine::threads);
    CHECK(!engines_.empty());
    return {};
}

Result<std::unique_ptr<DriveProbe>> Bench::open(const std::vector<std::string>& paths,
                                                IoEngine engine, const std::string& run_name,
                                                const std::vector<uint32_t>& weights) {
    Result<std::unique_ptr<DriveProbe>> probe =
        DriveProbe::open({.paths = paths,
                          .run_name = run_name,
                          .weights = weights,
                          .size_bytes = command_.size_bytes,
                          .block_bytes = command_.block_bytes,
                          .depth = command_.depth,
                          .engine = engine,
                          .pool = pool_,
                          .should_stop = context_.should_stop,
                          .on_stuck = context_.on_stuck});
    if (!probe) return probe;
    for (const std::string& note : (*probe)->store().notes()) {
        if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
    }
    return probe;
}

Status Bench::open_probes() {
    for (const std::string& path : command_.paths) {
        for (const IoEngine engine : engines_) {
            const bool is_ring = engine == IoEngine::uring;
            say(fmt::format("writing {} once in {}, for {}", format_bytes(command_.size_bytes),
                            path, is_ring ? "io_uring" : "threads"));
            auto probe = open({path}, engine, is_ring ? "bench.io_uring" : "bench.threads", {});
            if (!probe) return probe.error();
            for (const Pattern pattern : command_.patterns) {
                for (const Buffers buffers : {Buffers::small_pool, Buffers::whole_pool}) {
                    alone_.push_back({.probe = probe->get(),
                                      .path = path,
                                      .engine = is_ring ? "io_uring" : "threads",
                                      .pattern = pattern,
                                      .buffers = buffers});
                }
            }
            probes_.push_back(std::move(*probe));
        }
        const bool reads = std::ranges::count(command_.patterns, Pattern::read) > 0;
        DriveProbe* const first = probes_[probes_.size() - engines_.size()].get();
        if (reads) {
            alone_.push_back({.probe = first, .path = path, .engine = "pread", .is_raw = true});
        }
    }
    return {};
}

// By this bench so far to one path, or (empty) to all of them.
uint64_t Bench::written_bytes(const std::string& path) const {
    uint64_t bytes = 0;
    for (const std::unique_ptr<DriveProbe>& probe : probes_) {
        for (size_t i = 0; i < probe->paths().size(); i++) {
            const bool counts = path.empty() || probe->paths()[i] == path;
            if (counts) bytes += probe->store().statistics(i).write_bytes;
        }
    }
    return bytes;
}

// Interleaved, every other round backwards.
Status Bench::run_rounds(std::vector<Contestant>& contestants) {
    for (uint32_t round = 0; round < command_.rounds; round++) {
        say(fmt::format("round {} of {}: {} rows of a second or more", round + 1, command_.rounds,
                        contestants.size()));
        for (const size_t index : order_of_round(round, contestants.size())) {
            Contestant& one = contestants[index];
            if (round == 0) one.written_before_bytes = written_bytes(one.path);
            const nvme::Load load{.pattern = one.pattern,
                                  .buffers = one.buffers,
                                  .bytes_min = command_.size_bytes,
                                  .seconds_min = command_.seconds_min,
                                  .seconds_max = std::max(slow_pass_seconds, command_.seconds_min)};
            const Result<Measured> measured =
                one.is_raw ? one.probe->read_raw(load) : one.probe->measure(load);
            if (!measured) return measured.error();
            one.measured.push_back(*measured);
        }
    }
    return {};
}

Status Bench::measure_alone() {
    return run_rounds(alone_);
}

std::optional<double> Bench::alone_gb_per_s(const std::string& path, Pattern pattern) const {
    for (const Contestant& one : alone_) {
        const bool is_it =
            one.path == path && one.pattern == pattern && one.buffers == Buffers::whole_pool;
        if (is_it) return one.gb_per_s();  // the first: of the first engine
    }
    return std::nullopt;
}

// What a burst is and what lasts, per path.
Status Bench::measure_what_lasts() {
    const uint64_t budget_bytes =
        command_.sustained_bytes > 0 ? command_.sustained_bytes : 2 * command_.size_bytes;
    for (size_t path = 0; path < command_.paths.size(); path++) {
        DriveProbe& probe = *probes_[path * engines_.size()];
        say(fmt::format("writing up to {} in {}, until the rate falls", format_bytes(budget_bytes),
                        command_.paths[path]));
        const uint64_t before_bytes = written_bytes(command_.paths[path]);
        const uint64_t by_others_bytes = before_bytes - probe.written_bytes();
        lasting_written_before_bytes_.push_back(before_bytes);
        auto writes = probe.write_until_it_falls(budget_bytes);
        if (!writes) return writes.error();
        nvme::DriveSamples samples{.writes = std::move(*writes)};
        for (nvme::WriteSample& sample : samples.writes) {
            sample.written_before_bytes += by_others_bytes;
        }
        const auto read = alone_gb_per_s(command_.paths[path], Pattern::read);
        const auto mixed = alone_gb_per_s(command_.paths[path], Pattern::mixed);
        if (read) samples.read_bytes_per_s = {*read * 1e9};
        if (mixed) samples.mixed_bytes_per_s = {*mixed * 1e9};
        drives_.push_back(nvme::fold(samples));
    }
    return {};
}

Status Bench::add_together(const std::vector<uint32_t>& weights, const std::string& run_name) {
    auto probe = open(command_.paths, engines_[0], run_name, weights);
    if (!probe) return probe.error();
    for (const Pattern pattern : command_.patterns) {
        together_.push_back({.probe = probe->get(),
                             .path = "",
                             .engine = std::string((*probe)->store().engine_name()),
                             .name_end = ", " + weights_text(weights),
                             .pattern = pattern});
    }
    probes_.push_back(std::move(*probe));
    return {};
}

// Striped by weight and, where that differs, evenly, in the same rounds as each path alone.
Status Bench::measure_together() {
    if (command_.paths.size() == 1) return {};
    std::vector<double> rates;
    for (size_t path = 0; path < command_.paths.size(); path++) {
        const double write = drives_[path].write_sustained_bytes_per_s;
        const auto read = alone_gb_per_s(command_.paths[path], Pattern::read);
        rates.push_back(read ? nvme::step_bytes_per_s(*read * 1e9, write) : write);
    }
    const std::vector<uint32_t> weights = nvme::weights_of_rates(rates);
    const std::vector<uint32_t> equal(weights.size(), 1);
    say(fmt::format("striping over all paths, {}", weights_text(weights)));
    if (Status status = add_together(weights, "bench.striped"); !status) return status;
    if (weights != equal) {
        if (Status status = add_together(equal, "bench.even"); !status) return status;
    }
    const size_t striped_count = together_.size();
    for (const Contestant& one : alone_) {
        const bool is_main =
            one.buffers == Buffers::whole_pool && one.engine == together_[0].engine;
        if (!is_main) continue;
        together_.push_back(one);
        together_.back().measured.clear();
    }
    CHECK_GT(together_.size(), striped_count);
    return run_rounds(together_);
}

// Every block of every probe, which also were those of the measurements.
Status Bench::verify() {
    say("reading every block back, for its checksum");
    verified_bytes_.assign(command_.paths.size(), 0);
    for (const std::unique_ptr<DriveProbe>& probe : probes_) {
        const Result<uint64_t> verified = probe->verify();
        if (!verified) return verified.error();
        for (size_t path = 0; path < command_.paths.size(); path++) {
            if (std::ranges::count(probe->paths(), command_.paths[path]) == 0) continue;
            verified_bytes_[path] += *verified / probe->paths().size();
        }
    }
    return {};
}

// For runs, where every pattern was measured and a drive served them.
Status Bench::remember() {
    const nvme::DriveCache cache(context_.drive_cache);
    for (size_t path = 0; path < command_.paths.size(); path++) {
        const bool has_read = alone_gb_per_s(command_.paths[path], Pattern::read).has_value();
        const bool has_mixed = alone_gb_per_s(command_.paths[path], Pattern::mixed).has_value();
        if (!has_read || !has_mixed || !is_device_speed(path)) continue;
        static_cast<void>(cache.keep(
            facts_[path], {.drive = drives_[path], .measured_unix_s = context_.now_unix_s}));
    }
    return {};
}

std::optional<double> Bench::worst_cached_share(size_t path) const {
    std::optional<double> worst;
    for (const Contestant& one : alone_) {
        if (one.path != command_.paths[path]) continue;
        const std::optional<double> share = cached_share_of(one);
        if (share) worst = std::max(worst.value_or(0), *share);
    }
    return worst;
}

bool Bench::is_device_speed(size_t path) const {
    const bool is_buffered = probes_[path * engines_.size()]->is_buffered();
    return !is_buffered && worst_cached_share(path).value_or(0) <= cached_share_max;
}

BenchRow Bench::row_of(const Contestant& one, const nvme::DriveFacts* facts,
                       const Drive* drive) const {
    BenchRow row{.name = fmt::format("{}, {}, {}{}", name_of(one.pattern), one.engine,
                                     text_of(one.buffers, pool_.size()), one.name_end),
                 .unit = "GB/s"};
    if (one.is_raw) {
        row.name = fmt::format("read, raw, {} at a time",
                               format_bytes(command_.depth * command_.block_bytes));
    }
    std::vector<double> cpu;
    uint64_t moved_bytes = 0;
    for (const Measured& measured : one.measured) {
        moved_bytes += measured.read_bytes + measured.write_bytes;
        row.samples.push_back(measured.bytes_per_s() / 1e9);
        cpu.push_back(measured.cpu_seconds_per_gb());
    }
    row.achieved = median_of(row.samples);
    const uint64_t before_bytes = one.written_before_bytes;
    row.facts = {
        {"path", one.path.empty() ? fmt::format("{}", fmt::join(command_.paths, " ")) : one.path},
        {"pattern", std::string(name_of(one.pattern))},
        {"engine", one.engine},
        {"block_bytes", command_.block_bytes},
        {"depth", uint64_t{command_.depth}},
        {"file_bytes", one.probe->size_bytes()},
        {"cpu_seconds_per_gb", median_of(cpu)},
        {"written_before_bytes", before_bytes},
        {"alignment_bytes", offload::page_bytes}};
    if (!one.is_raw) {
        const bool is_small = one.buffers == Buffers::small_pool;
        row.facts.emplace_back("buffers", std::string(is_small ? "few" : "pool"));
    }
    if (const auto share = cached_share_of(one)) row.facts.emplace_back("cached_share", *share);
    if (drive != nullptr) {
        const bool is_after = drive->has_fallen && before_bytes >= drive->burst_bytes;
        row.facts.emplace_back("write_cache_state", std::string(!drive->has_fallen ? "no fall seen"
                                                                : is_after ? "after the fall"
                                                                           : "before the fall"));
    }
    if (facts != nullptr) {
        row.facts.emplace_back("drive", facts->model);
        row.facts.emplace_back("device", facts->device);
        row.facts.emplace_back("file_system", facts->file_system);
        row.facts.emplace_back("fill", facts->fill());
        row.facts.emplace_back("is_direct", !one.probe->store().is_buffered(0));
        // The store hands the caller's memory to the kernel: only the page cache copies.
        const uint64_t block_count = moved_bytes / command_.block_bytes;
        row.facts.emplace_back("copied_blocks", one.probe->is_buffered() ? block_count : 0);
    }
    return row;
}

// Burst and sustained stand beside the best of the write rows.
void Bench::add_lasting_rows(size_t path, NvmeBenchGroup& group) const {
    const Drive& drive = drives_[path];
    const auto row = [&](const std::string& name, double bytes_per_s, uint64_t before_bytes) {
        BenchRow made{.name = name,
                      .unit = "GB/s",
                      .samples = {bytes_per_s / 1e9},
                      .achieved = bytes_per_s / 1e9,
                      .ceiling = drive.write_burst_bytes_per_s / 1e9,
                      .against = "write, burst"};
        made.facts = {{"path", command_.paths[path]},         {"pattern", std::string("write")},
                      {"written_before_bytes", before_bytes}, {"burst_bytes", drive.burst_bytes},
                      {"has_fallen", drive.has_fallen},       {"drive", facts_[path].model},
                      {"fill", facts_[path].fill()}};
        return made;
    };
    group.rows.push_back(
        row("write, burst", drive.write_burst_bytes_per_s, lasting_written_before_bytes_[path]));
    group.rows.push_back(
        row("write, sustained", drive.write_sustained_bytes_per_s,
            drive.has_fallen ? drive.burst_bytes : lasting_written_before_bytes_[path]));
    group.notes.push_back(
        drive.has_fallen
            ? fmt::format("the write rate fell after {}: plan with the sustained rate",
                          format_bytes(drive.burst_bytes))
            : fmt::format("the write rate did not fall in {}; what lasts beyond that is not known: "
                          "--sustained-bytes 200GB looks further",
                          format_bytes(drive.burst_bytes)));
}

// Whose speed it is, and why that can be believed.
void Bench::add_how_it_was_measured(size_t path, NvmeBenchGroup& group) const {
    CHECK_LT(path, verified_bytes_.size());
    const DriveProbe& probe = *probes_[path * engines_.size()];
    const std::optional<double> cached = worst_cached_share(path);
    const std::string served =
        cached ? fmt::format("{:.0f}% of what was read came from no drive", *cached * 100)
               : "the kernel does not tell what drives served";
    group.notes.push_back(fmt::format(
        "{}, requests of {} at multiples of {} bytes, {} in flight{}; {}",
        probe.is_buffered() ? "through the page cache" : "past the page cache (O_DIRECT)",
        format_bytes(command_.block_bytes), offload::page_bytes, command_.depth,
        probe.is_buffered() ? ", copied by the cache" : ", none copied", served));
    group.notes.push_back(fmt::format("read back at the end: {}, every block as it was written",
                                      format_bytes(verified_bytes_[path])));
    if (is_device_speed(path)) return;
    group.notes.push_back(
        "this is NOT the speed of a drive: memory took part; nothing of it is "
        "remembered for runs");
}

NvmeBenchGroup Bench::group_of_path(size_t path) const {
    const std::string& folder = command_.paths[path];
    NvmeBenchGroup group{.title = fmt::format("{}: {}", folder, nvme::describe(facts_[path])),
                         .rows = {},
                         .notes = {}};
    double raw_gb_per_s = 0;
    for (const Contestant& one : alone_) {
        if (one.path != folder) continue;
        group.rows.push_back(row_of(one, &facts_[path], &drives_[path]));
        if (one.is_raw) raw_gb_per_s = one.gb_per_s();
    }
    for (BenchRow& row : group.rows) {
        row.facts.emplace_back("is_device_speed", is_device_speed(path));
        row.facts.emplace_back("verified_bytes", verified_bytes_[path]);
        if (raw_gb_per_s == 0 || !row.name.starts_with("read,")) continue;
        row.facts.emplace_back("of_raw", row.achieved / raw_gb_per_s);
    }
    // The ceiling of a row is the best of its pattern here.
    for (BenchRow& row : group.rows) {
        const std::string start = row.name.substr(0, row.name.find(','));
        for (const BenchRow& other : group.rows) {
            if (!other.name.starts_with(start + ",") || other.achieved <= row.ceiling) continue;
            row.ceiling = other.achieved;
            row.against = other.name;
        }
    }
    add_lasting_rows(path, group);
    add_how_it_was_measured(path, group);
    return group;
}

// The ceiling of a striped row is the sum of the paths alone, in the same rounds.
NvmeBenchGroup Bench::group_of_all() const {
    NvmeBenchGroup group{.title = "all paths together", .rows = {}, .notes = {}};
    for (const Contestant& one : together_) {
        BenchRow row = row_of(one, nullptr, nullptr);
        if (!one.path.empty()) {
            row.name += ", " + one.path;
        } else {
            row.against = "the sum of the paths alone";
            for (const Contestant& alone : together_) {
                if (!alone.path.empty() && alone.pattern == one.pattern) {
                    row.ceiling += alone.gb_per_s();
                }
            }
        }
        group.rows.push_back(std::move(row));
    }
    return group;
}

std::vector<NvmeBenchGroup> Bench::groups() const {
    std::vector<NvmeBenchGroup> groups;
    for (size_t path = 0; path < command_.paths.size(); path++) {
        groups.push_back(group_of_path(path));
    }
    if (!together_.empty()) groups.push_back(group_of_all());
    for (const std::string& note : notes_) groups.back().notes.push_back(note);
    return groups;
}

}  // namespace

Result<std::vector<NvmeBenchGroup>> bench_nvme(const BenchNvmeCommand& command,
                                               const NvmeBenchContext& context) {
    CHECK(!command.paths.empty());
    CHECK(!command.patterns.empty());
    CHECK_GE(command.rounds, 1u);
    CHECK_EQ(std::set<std::string>(command.paths.begin(), command.paths.end()).size(),
             command.paths.size());
    Bench bench(command, context);
    for (const auto move :
         {&Bench::take_pool, &Bench::choose_engines, &Bench::open_probes, &Bench::measure_alone,
          &Bench::measure_what_lasts, &Bench::measure_together, &Bench::verify, &Bench::remember}) {
        if (Status status = (bench.*move)(); !status) return status.error();
    }
    return bench.groups();
}

std::string text_of(const std::vector<NvmeBenchGroup>& groups) {
    std::string text;
    for (const NvmeBenchGroup& group : groups) {
        CHECK(!group.rows.empty());
        text += group.title + "\n";
        text += table_of(group.rows, {{.fact = "of_raw", .title = "of raw", .decimals = 2},
                                      {.fact = "cpu_seconds_per_gb", .title = "CPU s/GB"},
                                      {.fact = "written_before_bytes", .title = "written before"},
                                      {.fact = "write_cache_state", .title = "write cache"}});
        for (const std::string& note : group.notes) text += "  - " + note + "\n";
    }
    return text;
}

}  // namespace headrace::engine
