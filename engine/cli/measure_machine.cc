#include "engine/cli/measure_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/checkpoint/file.h"
#include "engine/cli/bench_gemm.h"
#include "engine/cli/bench_link.h"
#include "engine/cli/loops.h"
#include "engine/config/cores.h"
#include "engine/config/machine.h"
#include "engine/plan/placement.h"
#include "engine/torch/ops/matmul_sizes.h"
#include "kernels/host/slab.h"
#include "nvme/direct_file.h"
#include "nvme/probe.h"
#include "offload/check.h"
#include "offload/numbers.h"
#include "offload/units.h"

namespace headrace::engine {

namespace fs = std::filesystem;
using nvme::DriveProbe;
using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::format_number;
using offload::Result;
using offload::Status;

namespace {

constexpr double default_seconds = 20;
constexpr double drive_seconds = 1.5;  // of each pattern

class Measurer {
  public:
    explicit Measurer(const MeasureOptions& options)
        : options_(options), share_(options.seconds / default_seconds) {}

    Status measure();
    MeasuredMachine take() { return std::move(measured_); }

  private:
    offload::Machine& machine() { return measured_.file.machine; }
    void say(const std::string& line) const {
        if (options_.say) options_.say(line);
    }
    void note(const std::string& field, std::string how) {
        measured_.notes.emplace_back(field, std::move(how));
    }
    void take_memory();
    void take_latency();
    // How fast the card computes; of two looks, and what they say together.
    struct Products {
        double flops = 0;
        double reduce_bytes_per_s = 0;
    };
    Result<Products> look_at_products(offload::Dtype dtype) const;
    void take_products(const Products& first, const Products& last);
    Status take_fp32_products();
    Status take_link();
    Status take_drives();
    Status take_rates(DriveProbe& probe);
    Status take_flush();

    const MeasureOptions& options_;
    const double share_;  // of the usual time
    MeasuredMachine measured_;
};

Status Measurer::measure() {
    measured_.when = options_.when;
    machine().name = "measured";
    machine().core_count = static_cast<double>(usable_core_count());
    note("cpu.cores", "that this process may use");
    take_memory();
    take_latency();
    const Result<Products> first = look_at_products(offload::Dtype::bf16);
    if (!first) return first.error();
    if (Status status = take_link(); !status) return status;
    if (!options_.nvme_paths.empty()) {
        if (Status status = take_drives(); !status) return status;
    }
    // Again: where cores are shared with others, their speed of one moment tells little of a step.
    const Result<Products> last = look_at_products(offload::Dtype::bf16);
    if (!last) return last.error();
    take_products(*first, *last);
    if (matmul_path(offload::Dtype::bf16) == MatmulPath::rounded_fp32) return {};
    return take_fp32_products();
}

void Measurer::take_memory() {
    const uint64_t free_bytes = read_machine().ram_free_bytes();
    const uint64_t run_bytes = ceiling_of_free(free_bytes);
    measured_.file.ceilings = {.gpu_bytes = run_bytes / 2, .ram_bytes = run_bytes / 2};
    note("gpu.memory", fmt::format("half of what a run takes of the {} that were free: the card is "
                                   "memory here",
                                   format_bytes(free_bytes)));
    note("ram.memory", "the other half");
}

// How long it takes to hand something to a sleeping thread and hear of it: what each op costs
// beside its work.
double round_trip_s(int count) {
    std::mutex mutex;
    std::condition_variable changed;
    int asked = 0;
    int answered = 0;
    std::jthread other([&] {
        std::unique_lock lock(mutex);
        while (answered < count) {
            changed.wait(lock, [&] { return asked > answered; });
            ++answered;
            changed.notify_all();
        }
    });
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 1; i <= count; ++i) {
        std::unique_lock lock(mutex);
        asked = i;
        changed.notify_all();
        changed.wait(lock, [&] { return answered == i; });
    }
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - begin).count() / count;
}

void Measurer::take_latency() {
    machine().launch_s = round_trip_s(2000);
    machine().link.latency_s = machine().launch_s;
    note("gpu.launch_us", "to a sleeping thread and back, mean of 2000");
    note("link.latency_us", "the same");
}

Result<Measurer::Products> Measurer::look_at_products(offload::Dtype dtype) const {
    say(fmt::format("products of {}", options_.shape_name));
    const BenchGemmCommand command{.column_count = options_.token_count,
                                   .dtype = dtype,
                                   .rounds = 1,
                                   .seconds_min = 0.3 * share_};
    const Result<GemmBench> bench =
        bench_gemm(command, options_.shape,
                   {.compute_thread_count = options_.compute_thread_count,
                    .free_bytes = read_machine().ram_free_bytes(),
                    .should_stop = options_.should_stop});
    if (!bench) return bench.error();
    return Products{.flops = bench->step_flops, .reduce_bytes_per_s = bench->reduce_bytes_per_s};
}

void Measurer::take_products(const Products& first, const Products& last) {
    machine().gpu_flops = rate_of_both(first.flops, last.flops);
    machine().gpu_memory_bytes_per_s =
        rate_of_both(first.reduce_bytes_per_s, last.reduce_bytes_per_s);
    machine().compute_cores = options_.compute_thread_count;
    note("gpu.tflops",
         fmt::format(
             "headrace bench gemm: a step of {}, {} tokens at a time, bf16; first {}, last {}",
             options_.shape_name, options_.token_count, format_number(first.flops / 1e12),
             format_number(last.flops / 1e12)));
    note("gpu.memory_gb_per_s", "gradients rounded into the stash, one thread");
    note("gpu.cores", "threads that compute");
}

// Where bf16 is multiplied as such, other dtypes have another rate.
Status Measurer::take_fp32_products() {
    const Result<Products> products = look_at_products(offload::Dtype::fp32);
    if (!products) return products.error();
    measured_.file.fp32_flops = products->flops;
    note("gpu.fp32_tflops", "the same in fp32, for runs in fp32 and fp16");
    return {};
}

Status Measurer::take_link() {
    say("copies, update and memory");
    const auto size_mib = static_cast<uint64_t>(128 * share_);
    const BenchLinkCommand command{
        .size_bytes = std::clamp<uint64_t>(size_mib, 8, 128) * offload::mib,
        .update_thread_count = options_.update_thread_count,
        .rounds = 3,
        .seconds_min = 0.15 * share_};
    const Result<LinkBench> bench =
        bench_link(command, {.core_count = static_cast<uint32_t>(machine().core_count),
                             .free_bytes = read_machine().ram_free_bytes(),
                             .should_stop = options_.should_stop});
    if (!bench) return bench.error();
    const LinkFigures& figures = bench->figures;
    offload::LinkRates& link = machine().link;
    link.h2d_bytes_per_s = figures.h2d_bytes_per_s;
    link.d2h_bytes_per_s = figures.d2h_bytes_per_s;
    // Half of the bytes each way, in turns and together.
    const double in_turns_s = 0.5 / link.h2d_bytes_per_s + 0.5 / link.d2h_bytes_per_s;
    link.both_ways = std::clamp(in_turns_s * figures.both_bytes_per_s, 1.0, 2.0);
    machine().copy_cores = 1;
    // A copy alone must fit into what memory carries.
    machine().memory_bytes_per_s = std::max(
        figures.stream_bytes_per_s, 2 * std::max(link.h2d_bytes_per_s, link.d2h_bytes_per_s));
    machine().update_parameters_per_s = figures.update_parameters_per_s;
    // More threads than cores keep no more cores busy.
    machine().update_cores = std::min<double>(options_.update_thread_count, machine().core_count);
    note("link.h2d_gb_per_s", "headrace bench link: one thread copies, blocks of 4 MiB");
    note("link.d2h_gb_per_s", "the same, back");
    note("link.both_ways", fmt::format("both at once {} GB/s, beside an update {} GB/s",
                                       format_number(figures.both_bytes_per_s / 1e9),
                                       format_number(figures.both_beside_bytes_per_s / 1e9)));
    note("link.cores", "a thread each");
    note("ram.gb_per_s", "read and written, a loop of all cores over an update's arrays");
    note("cpu.update_gparam_per_s",
         fmt::format("bf16 with fp32 states, alone; beside copies both ways {} Gparam/s",
                     format_number(figures.update_beside_parameters_per_s / 1e9)));
    note("cpu.update_cores", "threads of the update, as the run has them");
    return {};
}

Status Measurer::take_rates(DriveProbe& probe) {
    say("drives: reading, writing, both");
    const auto measured = probe.measure_in_turns(drive_seconds * share_);
    if (!measured) return measured.error();
    const auto& [read, write, mixed] = *measured;
    offload::DriveRates& drive = machine().drive;
    drive.read_bytes_per_s = read.bytes_per_s();
    drive.write_bytes_per_s = write.bytes_per_s();
    const double in_turns_s = static_cast<double>(mixed.read_bytes) / drive.read_bytes_per_s +
                              static_cast<double>(mixed.write_bytes) / drive.write_bytes_per_s;
    drive.both_ways = std::clamp(in_turns_s / mixed.seconds, 1.0, 2.0);
    note("drive.read_gb_per_s", "through the store of a run, blocks of 1 MiB, 8 in flight");
    note("drive.write_gb_per_s",
         fmt::format("the same, of the first {}: a consumer drive falls later; headrace bench nvme "
                     "finds out",
                     format_bytes(probe.written_bytes())));
    note("drive.both_ways",
         fmt::format("mixed as in a step {} GB/s", format_number(mixed.bytes_per_s() / 1e9)));
    return {};
}

// One page written and made durable, in a file of its own.
Status Measurer::take_flush() {
    std::vector<double> seconds;
    for (const std::string& path : options_.nvme_paths) {
        const std::string name = (fs::path(path) / "headrace-probe-flush").string();
        const nvme::FileOperations operations;
        Result<nvme::DirectFile> file = nvme::DirectFile::open(
            name, nvme::Existence::may_be_made, nvme::CachePolicy::direct, operations);
        if (!file) return file.error();
        const auto once = [&]() -> Status {
            const std::vector<std::byte> page(offload::page_bytes);
            if (const auto space = file->allocate(offload::page_bytes); !space) {
                return space.error();
            }
            if (Status status = file->probe(nvme::Probe::write_and_read); !status) return status;
            for (int i = 0; i < 20; ++i) {
                if (Status status = file->write_exact(0, page); !status) return status;
                const auto begin = std::chrono::steady_clock::now();
                if (Status status = file->flush(); !status) return status;
                const auto end = std::chrono::steady_clock::now();
                seconds.push_back(std::chrono::duration<double>(end - begin).count());
            }
            return {};
        };
        const Status status = once();
        std::error_code ignored;
        fs::remove(name, ignored);
        if (!status) return status;
    }
    machine().drive.flush_s = median_of(seconds);
    note("drive.flush_ms", fmt::format("fdatasync after a page, median of {}", seconds.size()));
    return {};
}

Status Measurer::take_drives() {
    kernels::HostMemory memory({.ram_capacity_bytes = 256 * offload::mib});
    const auto pool = memory.take(offload::Tier::ram, 256 * offload::mib);
    if (!pool) return pool.error();
    std::memset(pool->data(), 1, pool->size());
    nvme::ProbeOptions probe_options{.paths = options_.nvme_paths,
                                     .run_name = "headrace-probe",
                                     .pool = *pool,
                                     .should_stop = options_.should_stop,
                                     .on_stuck = options_.on_stuck};
    // A file that goes round in a measurement, within what a probe needs of each path.
    const auto blocks = static_cast<uint64_t>(share_ * 1024);
    probe_options.size_bytes = std::clamp<uint64_t>(blocks, 64 * options_.nvme_paths.size(), 1024) *
                               probe_options.block_bytes;
    say(fmt::format("drives: writing {} once", format_bytes(probe_options.size_bytes)));
    Result<std::unique_ptr<DriveProbe>> probe = DriveProbe::open(std::move(probe_options));
    if (!probe) return probe.error();
    if (Status status = take_rates(**probe); !status) return status;
    probe->reset();
    if (Status status = take_flush(); !status) return status;
    uint64_t free_bytes = 0;
    for (const std::string& path : options_.nvme_paths) {
        const std::optional<DriveSpace> space = read_drive_space(path);
        if (space) free_bytes += space->free_bytes;
    }
    measured_.file.ceilings.nvme_bytes = free_bytes;
    measured_.file.drive_count = static_cast<uint32_t>(options_.nvme_paths.size());
    note("drive.count", fmt::format("{}", fmt::join(options_.nvme_paths, ", ")));
    note("drive.space", "what was free");
    machine().drive.latency_s = machine().launch_s;
    note("drive.latency_us", "as of the other lanes; a request's own is hidden behind 8 in flight");
    return {};
}

// One section's lines: "  tflops: 0.12        # how".
class Section {
  public:
    Section(const MeasuredMachine& machine, std::string name)
        : machine_(machine), name_(std::move(name)), text_(name_ + ":\n") {}

    void add(const std::string& key, const std::string& value) {
        std::string line = fmt::format("  {}: {}", key, value);
        for (const auto& [field, how] : machine_.notes) {
            if (field == name_ + "." + key) line = fmt::format("{:<32}# {}", line, how);
        }
        text_ += line + "\n";
    }
    void add(const std::string& key, double value) { add(key, fmt::format("{:.6g}", value)); }
    const std::string& text() const { return text_; }

  private:
    const MeasuredMachine& machine_;
    std::string name_;
    std::string text_;
};

std::string drive_section(const MeasuredMachine& machine) {
    const offload::DriveRates& drive = machine.file.machine.drive;
    Section section(machine, "drive");
    section.add("count", machine.file.drive_count);
    section.add("space", fmt::format("{}", machine.file.ceilings.nvme_bytes));
    section.add("read_gb_per_s", drive.read_bytes_per_s / 1e9);
    section.add("write_gb_per_s", drive.write_bytes_per_s / 1e9);
    section.add("latency_us", drive.latency_s * 1e6);
    section.add("flush_ms", drive.flush_s * 1e3);
    section.add("both_ways", drive.both_ways);
    return section.text();
}

}  // namespace

Result<MeasuredMachine> measure_machine(const MeasureOptions& options) {
    CHECK_GT(options.seconds, 0.0);
    Measurer measurer(options);
    if (Status status = measurer.measure(); !status) return status.error();
    MeasuredMachine measured = measurer.take();
    const std::string fault = find_fault(measured.file.machine);
    CHECK_TEXT(fault.empty(), fault);
    return measured;
}

std::string yaml_of(const MeasuredMachine& measured) {
    const offload::Machine& machine = measured.file.machine;
    Section gpu(measured, "gpu");
    gpu.add("memory", fmt::format("{}", measured.file.ceilings.gpu_bytes));
    gpu.add("tflops", machine.gpu_flops / 1e12);
    if (measured.file.fp32_flops > 0) gpu.add("fp32_tflops", measured.file.fp32_flops / 1e12);
    gpu.add("memory_gb_per_s", machine.gpu_memory_bytes_per_s / 1e9);
    gpu.add("launch_us", machine.launch_s * 1e6);
    gpu.add("cores", machine.compute_cores);
    Section link(measured, "link");
    link.add("h2d_gb_per_s", machine.link.h2d_bytes_per_s / 1e9);
    link.add("d2h_gb_per_s", machine.link.d2h_bytes_per_s / 1e9);
    link.add("latency_us", machine.link.latency_s * 1e6);
    link.add("both_ways", machine.link.both_ways);
    link.add("cores", machine.copy_cores);
    Section ram(measured, "ram");
    ram.add("memory", fmt::format("{}", measured.file.ceilings.ram_bytes));
    ram.add("gb_per_s", machine.memory_bytes_per_s / 1e9);
    Section cpu(measured, "cpu");
    cpu.add("cores", machine.core_count);
    cpu.add("update_cores", machine.update_cores);
    cpu.add("update_gparam_per_s", machine.update_parameters_per_s / 1e9);
    std::string text = fmt::format(
        "# This machine, measured by headrace doctor --probe, {}. Nothing else should have run.\n"
        "name: {}\n",
        measured.when, machine.name);
    text += gpu.text() + link.text() + ram.text() + cpu.text();
    if (measured.file.drive_count > 0) text += drive_section(measured);
    return text;
}

Status write_machine(const MeasuredMachine& machine, const std::string& path) {
    const fs::path target(path);
    const auto failure = [&](const std::string& why) {
        return Error{ErrorCode::failed, fmt::format("cannot write the machine file '{}'", path),
                     why};
    };
    std::error_code error;
    if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
    if (error) return failure(error.message());
    const Status written = save_text(path, yaml_of(machine));
    return written ? written : failure(written.error().text());
}

}  // namespace headrace::engine
