// NvmeStore: an offload::Store on one or more drives, with io_uring or, where that is forbidden,
// with threads. Places are striped over the paths (placement.h); each path has one data file,
// preallocated, one queue of blocks (block_queue.h), and one ring thread or several calling threads
// that serve it.
//
// open_store refuses what cannot work before it makes anything: a path that is missing, a file,
// read-only, not writable or too full, a budget that is too small. It replaces the store of a dead
// run of the same name; one that is held is refused with its owner's name. What it can do without
// (O_DIRECT, registered buffers, io_uring) it notes: notes() is for the log, one line each.
//
// A write that is a prefix of a place keeps the rest of a one-copy place; of a two-copy place the
// rest reads as zeros from then on. The memory of transfers is the caller's: page-aligned, best on
// 2 MiB pages (that doubles the throughput) and, if given as `buffers`, registered with the rings.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "nvme/block_queue.h"
#include "nvme/chores.h"
#include "nvme/file_operations.h"
#include "nvme/placement.h"
#include "nvme/ring.h"
#include "nvme/run_folder.h"
#include "nvme/uring_probe.h"
#include "nvme/watchdog.h"
#include "nvme/write_limit.h"
#include "offload/result.h"
#include "offload/store.h"
#include "offload/units.h"

namespace headrace::nvme {

struct StoreOptions {
    std::vector<std::string> paths = {};
    std::string run_name = {};  // of the folder: letters, digits, '.', '_', '-'
    std::vector<offload::PlaceSpec> places = {};
    std::vector<uint32_t> weights = {};  // blocks per path and cycle; empty: equal
    IoEngine engine = IoEngine::automatic;
    uint32_t depth = 8;  // blocks in flight per path; threads: at most 8 of them
    uint64_t block_bytes = 1 * offload::mib;  // of a request, and the stripe
    std::vector<std::span<std::byte>> buffers = {};
    Registration registration = Registration::preferred;
    uint64_t budget_bytes = std::numeric_limits<uint64_t>::max();  // of all paths together
    // Of writes of places, all paths together; at least 1. The maximum: as fast as they go.
    uint64_t write_bytes_per_s_max = std::numeric_limits<uint64_t>::max();
    // When a request has not ended for stuck_after, on_stuck is called with the words for it, once,
    // on a thread of the store. Whoever gets them says them and ends the process with _exit; to
    // leave without running into destructors, abandon() the store. Without on_stuck nobody watches.
    std::chrono::nanoseconds stuck_after = std::chrono::seconds(300);
    std::function<void(std::string)> on_stuck = {};
    FileOperations operations = {};  // tests: faults
};

// What a store of these places takes: data and maps, all paths together.
uint64_t store_bytes_of(const std::vector<offload::PlaceSpec>& places, size_t path_count);

class NvmeStore final : public offload::Store {
  public:
    ~NvmeStore() override;  // waits until everything in flight is done; keeps the files

    void start(offload::Transfer transfer) override;
    void sync(uint32_t path, offload::Done done) override;
    void record(const offload::CommitRecord& record, offload::Done done) override;
    void seal(offload::Done done) override;
    uint32_t path_count() const override { return static_cast<uint32_t>(folders_.size()); }
    const std::vector<offload::PlaceSpec>& places() const override { return places_; }

    // What is done without, for people. Fixed since open_store.
    const std::vector<std::string>& notes() const { return notes_; }
    std::string_view engine_name() const { return rings_.empty() ? "threads" : "io_uring"; }

    uint64_t bytes_on(size_t path) const;          // reserved for places there
    bool is_buffered(size_t path) const;           // not O_DIRECT
    PathStatistics statistics(size_t path) const;  // since it was opened
    uint64_t registered_bytes() const;             // per ring

  private:
    friend offload::Result<std::unique_ptr<NvmeStore>> open_store(StoreOptions options);

    // What the store knows of a place. Only complete writes change it, but for the two counts.
    struct PlaceState {
        uint8_t truth = 0;
        std::array<uint64_t, 2> written_bytes = {0, 0};  // 0: reads as zeros
        uint32_t readers = 0;
        uint32_t writers = 0;
    };

    NvmeStore(const StoreOptions& options, Placement placement);
    offload::Status make_folders(const StoreOptions& options);
    offload::Status make_rings(const StoreOptions& options);
    void start_threads(const StoreOptions& options);
    std::optional<Pending> oldest_pending() const;
    ActiveTransfer& take_active();           // mutex_ held
    void give_back(ActiveTransfer& active);  // mutex_ held
    void finish(ActiveTransfer& active);
    void serve_zeros();

    const std::vector<offload::PlaceSpec> places_;
    const Placement placement_;
    std::vector<std::string> notes_;
    std::vector<std::unique_ptr<RunFolder>> folders_;
    std::unique_ptr<WriteLimit> write_limit_;  // null: none
    std::vector<std::unique_ptr<BlockQueue>> queues_;
    std::vector<std::unique_ptr<Ring>> rings_;  // empty: threads

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<PlaceState> states_;
    std::deque<ActiveTransfer> actives_;  // grows to the most that were in flight at once
    ActiveTransfer* free_active_ = nullptr;
    ActiveTransfer* first_zeros_ = nullptr;  // reads of places that were never written
    ActiveTransfer* last_zeros_ = nullptr;
    uint64_t in_flight_count_ = 0;
    bool is_closing_ = false;

    std::vector<std::jthread> threads_;
    std::vector<std::unique_ptr<Chores>> chores_;  // per path
    std::unique_ptr<Watchdog> watchdog_;           // null: nobody watches. Last: looks at the rest
};

offload::Result<std::unique_ptr<NvmeStore>> open_store(StoreOptions options);

// After on_stuck: the store stays as it is, threads, rings and memory, until the process ends with
// _exit, which must come soon. The memory of its transfers must stay mapped as well.
void abandon(std::unique_ptr<NvmeStore> store);

// Deletes what open_store made for the run on these paths, and nothing else. A path without it is
// skipped; a store that somebody holds is an Error, and nothing is removed.
offload::Status remove_store(const std::vector<std::string>& paths, const std::string& run_name);

}  // namespace headrace::nvme
