// DriveProbe: measures drives through the store itself: places, striping, queues, ring or threads,
// all as in a run. A probe is a store of scratch places of one block each, written once before
// anything is measured (a first write is another thing than an overwrite). Its files have no name
// and go with the probe, or with the process, whatever ends it.
//
// A measurement keeps a fixed number of blocks in flight and starts the next one where the last one
// ended, so no thread of its own stands between the drive and the clock. Its buffers are the
// caller's pool (2 MiB pages, or the figures halve). How much of the pool goes round matters: a few
// buffers that are used again at once stay in the processor's caches and flatter the drive by 10 to
// 25%; a step does not have that.
//
// Every block that it writes is a chunk of noise, and it remembers which one lies where, at no cost
// to what is measured: verify() reads all blocks back and compares checksums. read_raw() is the
// yardstick: the same file, read from its beginning to its end by plain calls, without the store.
//
// One thread uses a probe. What it measures is the whole process's: nothing else should run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nvme/drive.h"
#include "nvme/nvme_store.h"
#include "nvme/uring_probe.h"
#include "offload/result.h"
#include "offload/units.h"

namespace headrace::nvme {

// mixed: reads and writes together, 16 bytes to 14 as in a step (drive.h).
enum class Pattern : uint8_t { read, write, mixed };
std::string_view name_of(Pattern pattern);
offload::Result<Pattern> parse_pattern(std::string_view name);

struct ProbeOptions {
    std::vector<std::string> paths = {};
    std::string run_name = {};               // of the folder on each path; a stale one is replaced
    std::vector<uint32_t> weights = {};      // empty: equal
    uint64_t size_bytes = 3 * offload::gib;  // of all paths together; cut to whole blocks
    uint64_t block_bytes = 1 * offload::mib;
    uint32_t depth = 8;
    IoEngine engine = IoEngine::automatic;
    std::span<std::byte> pool = {};          // at least pool_bytes_min; what it holds is lost
    std::function<bool()> should_stop = {};  // asked ten times a second; empty: never
    std::chrono::nanoseconds stuck_after = std::chrono::seconds(300);  // as in store_options.h
    std::function<void(std::string)> on_stuck = {};                    // as there
    FileOperations operations = {};                                    // tests: faults
};

// small_pool: as many as are in flight, which on one path is the depth.
enum class Buffers : uint8_t { small_pool, whole_pool };

struct Load {
    Pattern pattern = Pattern::read;
    Buffers buffers = Buffers::whole_pool;
    // It ends when both are reached, or at seconds_max, whichever is first.
    uint64_t bytes_min = 0;
    double seconds_min = 1;
    double seconds_max = 5;
};

struct Measured {
    uint64_t read_bytes = 0;
    uint64_t write_bytes = 0;
    double seconds = 0;
    double cpu_seconds = 0;  // user and system, of this process
    // Of the bytes read, the share that no drive served, by the kernel's account (process_io.h):
    // the page cache did, or a file system in memory. Nothing: nothing was read, or there is no
    // account.
    std::optional<double> cached_share = {};

    double bytes_per_s() const;
    double cpu_seconds_per_gb() const;
};

// Of all patterns.
struct MeasuredInTurns {
    Measured read;
    Measured write;
    Measured mixed;
};

class DriveProbe {
  public:
    // Makes the store and writes it once. Errors: open_store's; stopped; the drive's.
    static offload::Result<std::unique_ptr<DriveProbe>> open(ProbeOptions options);
    ~DriveProbe();  // removes the files
    DriveProbe(const DriveProbe&) = delete;
    DriveProbe& operator=(const DriveProbe&) = delete;

    offload::Result<Measured> measure(const Load& load);

    // Each pattern for `seconds` in all, in short turns: a drive whose rate wanders shows the same
    // minute to all three, and is not taken for one that mixes faster than it reads.
    offload::Result<MeasuredInTurns> measure_in_turns(double seconds);

    // Reads the file of a probe of one path (CHECK) by itself, in turns from its beginning to its
    // end, `depth` blocks at a time; past the page cache where the store does. Load's pattern and
    // buffers do not matter.
    offload::Result<Measured> read_raw(const Load& load);

    // Reads every block back and compares it with what was written last. The bytes compared. Error
    // (bad_data): the first that differs, by its number.
    offload::Result<uint64_t> verify();

    // Writes without a pause, a sample every quarter second, until the rate has fallen and stayed
    // down for two seconds, or budget_bytes are written; a second at least.
    offload::Result<std::vector<WriteSample>> write_until_it_falls(uint64_t budget_bytes);

    const NvmeStore& store() const { return *store_; }
    // No O_DIRECT on one of the paths: what is measured is the page cache, too.
    bool is_buffered() const;
    const std::vector<std::string>& paths() const { return options_.paths; }
    uint64_t size_bytes() const;
    uint64_t written_bytes() const { return written_bytes_; }  // since open, the first pass too

    static uint64_t pool_bytes_min(const ProbeOptions& options);

  private:
    class Run;
    explicit DriveProbe(ProbeOptions options);
    offload::Result<Measured> run(const Load& load,
                                  const std::function<bool(uint64_t, double)>& watch);

    ProbeOptions options_;
    std::unique_ptr<NvmeStore> store_;
    uint64_t written_bytes_ = 0;
    std::vector<uint32_t> chunk_of_place_;  // of the noise: what each was written with last
};

// A first idea of a drive, for a store that is about to be opened there: a file of 64 MiB, half a
// second of writes and as much of reads, 1.5 s in all on a drive of 150 MB/s or more. The sustained
// rate is the burst's: a drive that falls later is not found out in half a second. `options` says
// path (one), pool, engine, block and depth.
offload::Result<Drive> quick_measure(ProbeOptions options);

}  // namespace headrace::nvme
