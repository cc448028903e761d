// A commit beside its floor: how long from the end of the last write of a step until the step is
// durable. Every iteration writes the same bytes through a store and with pwrite into two
// plain files, and times what makes them durable, one after the other:
//
//   commit_p50_ms, commit_p99_ms  sync, record and seal of a store (one path)
//   bare_p50_ms, bare_p99_ms      fdatasync of the data file, then of the journal file; the data is
//                                 on the drive already, the record's pages are in the page cache,
//                                 where a store's are too
//   ratio_p50, ratio_p99          the two
//   flushes_p50_ms                the same with the record's pages on the drive already: two empty
//                                 flushes, the floor under any commit
//
// Run: commit_bench [--benchmark_filter=uring]; HEADRACE_BENCH_PATH names the folder to use on the
// drive (default: here). Takes about twice a row's bytes there.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/host/slab.h"
#include "nvme/nvme_store.h"
#include "offload/units.h"

namespace headrace::nvme {

namespace {

constexpr uint64_t place_bytes = 8 * offload::mib;

double ms_of(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
}

double percentile(std::vector<double> values, double share) {
    CHECK(!values.empty());
    std::ranges::sort(values);
    const auto index = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
    return values[index];
}

// A preallocated file. `mode`: O_DIRECT, or 0 to write into the page cache.
class PlainFile {
  public:
    PlainFile(std::string path, uint64_t size_bytes, int mode) : path_(std::move(path)) {
        descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | mode, 0600);
        CHECK_GE(descriptor_, 0);
        CHECK_EQ(posix_fallocate(descriptor_, 0, static_cast<off_t>(size_bytes)), 0);
    }
    PlainFile(const PlainFile&) = delete;
    ~PlainFile() {
        close(descriptor_);
        unlink(path_.c_str());
    }
    void write(std::span<const std::byte> bytes, uint64_t offset_bytes) const {
        CHECK_EQ(pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes)),
                 static_cast<ssize_t>(bytes.size()));
    }
    void flush() const { CHECK_EQ(fdatasync(descriptor_), 0); }

  private:
    std::string path_;
    int descriptor_ = -1;
};

std::unique_ptr<NvmeStore> open_bench_store(const std::string& folder, uint64_t place_count,
                                            IoEngine engine, std::span<std::byte> buffer) {
    StoreOptions options{.paths = {folder}, .run_name = "commit-bench", .engine = engine};
    for (uint64_t place = 0; place < place_count; ++place) {
        options.places.push_back(
            {"place " + std::to_string(place), place_bytes, offload::Copies::two});
    }
    options.buffers = {buffer};
    return std::move(open_store(std::move(options)).value());
}

void commit_beside_bare(benchmark::State& state, IoEngine engine) {
    const char* chosen = std::getenv("HEADRACE_BENCH_PATH");
    const std::string folder = chosen == nullptr ? "." : chosen;
    const auto step_bytes = static_cast<uint64_t>(state.range(0)) * offload::mib;
    const uint64_t place_count = step_bytes / place_bytes;
    kernels::HostMemory memory({.ram_capacity_bytes = place_bytes});
    const std::span<std::byte> buffer = memory.take(offload::Tier::ram, place_bytes).value();
    std::ranges::fill(buffer, std::byte{0x5A});
    std::vector<double> commits;
    std::vector<double> bares;
    std::vector<double> flushes;
    {
        const auto store = open_bench_store(folder, place_count, engine, buffer);
        const uint64_t record_bytes = commit_area_bytes_of(place_count);
        const PlainFile data(folder + "/commit-bench-data", step_bytes, O_DIRECT);
        const PlainFile journal(folder + "/commit-bench-journal", 2 * record_bytes, 0);
        uint64_t step = 0;
        for ([[maybe_unused]] auto iteration : state) {
            ++step;
            for (uint32_t place = 0; place < place_count; ++place) {
                CHECK(transfer_and_wait(*store, offload::Direction::write, place, buffer).ok());
            }
            commits.push_back(ms_of(
                [&] { CHECK(commit_and_wait(*store, {.attempts = step, .updates = step}).ok()); }));
            const auto write_step = [&] {
                for (uint64_t place = 0; place < place_count; ++place) {
                    data.write(buffer, place * place_bytes);
                }
                journal.write(buffer.first(record_bytes), step % 2 * record_bytes);
            };
            const auto flush_both = [&] {
                data.flush();
                journal.flush();
            };
            write_step();
            bares.push_back(ms_of(flush_both));
            write_step();
            journal.flush();
            flushes.push_back(ms_of(flush_both));
        }
    }
    CHECK(remove_store({folder}, "commit-bench").ok());
    state.counters["commit_p50_ms"] = percentile(commits, 0.5);
    state.counters["commit_p99_ms"] = percentile(commits, 0.99);
    state.counters["bare_p50_ms"] = percentile(bares, 0.5);
    state.counters["bare_p99_ms"] = percentile(bares, 0.99);
    state.counters["flushes_p50_ms"] = percentile(flushes, 0.5);
    state.counters["ratio_p50"] = percentile(commits, 0.5) / percentile(bares, 0.5);
    state.counters["ratio_p99"] = percentile(commits, 0.99) / percentile(bares, 0.99);
}

void commit_uring(benchmark::State& state) {
    commit_beside_bare(state, IoEngine::uring);
}
void commit_threads(benchmark::State& state) {
    commit_beside_bare(state, IoEngine::threads);
}

BENCHMARK(commit_uring)->ArgName("MiB")->Arg(64)->Arg(1024)->Iterations(100)->UseRealTime();
BENCHMARK(commit_threads)->ArgName("MiB")->Arg(64)->Iterations(100)->UseRealTime();

}  // namespace

}  // namespace headrace::nvme

BENCHMARK_MAIN();
