// NvmeStore: an offload::Store on one or more drives, with io_uring or, where that is forbidden,
// with threads. Places are striped over the paths (placement.h); each path has one data file,
// preallocated, one queue of blocks (block_queue.h), and one ring thread or several calling threads
// that serve it.
//
// open_store refuses what cannot work before it makes anything: a path that is missing, a file,
// read-only, not writable or too full, a budget that is too small. It makes a store, replacing that
// of a dead run of the same name, or resumes one at a commit (Opening); one that is held is refused
// with its owner's name. What it can do without (O_DIRECT, registered buffers, io_uring) it notes:
// notes() is for the log, one line each.
//
// Commits are as offload/store.h says, with two more words. A place that a commit finds written was
// written whole (CHECK). After a move of a commit failed, the store makes no further commit and
// takes no further write of a durable place. After a resume the first whole read of a place
// verifies its sum; a place that is damaged is an Error that names it.
//
// A write that is a prefix of a place keeps the rest of scratch; of a durable place the rest reads
// as zeros from then on. The memory of transfers is the caller's: page-aligned, best on
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
#include "nvme/generations.h"
#include "nvme/journal.h"
#include "nvme/placement.h"
#include "nvme/ring.h"
#include "nvme/run_folder.h"
#include "nvme/store_files.h"
#include "nvme/store_options.h"
#include "nvme/uring_probe.h"
#include "nvme/watchdog.h"
#include "nvme/write_limit.h"
#include "offload/result.h"
#include "offload/store.h"
#include "offload/units.h"

namespace headrace::nvme {

// What a store was resumed at.
struct Recovered {
    offload::CommitRecord record = {};
    std::optional<uint64_t> other_attempts = {};  // of the other commit that was kept
};

class NvmeStore final : public offload::Store {
  public:
    ~NvmeStore() override;  // waits until everything in flight is done; keeps the files

    void start(offload::Transfer transfer) override;
    void sync(uint32_t path, offload::Done done) override;
    void record(const offload::CommitRecord& record, offload::Done done) override;
    void seal(offload::Done done) override;
    void withdraw(offload::Done done) override;
    std::optional<offload::CommitRecord> newest_commit() const override;
    uint32_t path_count() const override { return static_cast<uint32_t>(folders_.size()); }
    const std::vector<offload::PlaceSpec>& places() const override { return places_; }

    // For what nobody shall resume: takes the files' names away and works on. Their space is free
    // again as soon as the store goes, or the process, whatever ends it: kill -9 leaves nothing.
    // Error: failed; what still has a name is removed by remove_store.
    offload::Status unlink_names();

    // The commit that a resume opened at; none of a fresh store. Fixed since open_store.
    const std::optional<Recovered>& recovered() const { return recovered_; }

    // For a forked child that lives on without exec (all files close on exec): it shares the locks
    // and would keep them after the parent was killed. Called in the child, where the store is a
    // copy without threads that must not be used nor destroyed.
    void let_go_in_child();

    // What is done without, for people. Fixed since open_store.
    const std::vector<std::string>& notes() const { return notes_; }
    std::string_view engine_name() const { return rings_.empty() ? "threads" : "io_uring"; }

    const Uuid& uuid() const;                         // of the store, on all its paths
    const std::string& path_name(size_t path) const;  // as the user gave it
    uint64_t bytes_on(size_t path) const;             // reserved for places there
    bool is_buffered(size_t path) const;              // not O_DIRECT
    // Where this process finds the data file there, also when it has no name.
    std::string data_file(size_t path) const;
    PathStatistics statistics(size_t path) const;  // since it was opened
    uint64_t registered_bytes() const;             // per ring

  private:
    friend offload::Result<std::unique_ptr<NvmeStore>> open_store(StoreOptions options);

    NvmeStore(const StoreOptions& options, StoreFiles files);
    offload::Status make_rings(const StoreOptions& options);
    void start_threads(const StoreOptions& options);
    offload::Status recover(std::optional<uint64_t> attempts);
    offload::Status step_back();
    std::optional<Pending> oldest_pending() const;
    void refuse(offload::Done done, offload::Error error);
    ActiveTransfer& take_active();           // mutex_ held
    void give_back(ActiveTransfer& active);  // mutex_ held
    void finish(ActiveTransfer& active);
    void serve_zeros();
    void learn_newest();  // after a move of a commit, by whoever made it; mutex_ held

    const std::vector<offload::PlaceSpec> places_;
    const Placement placement_;
    std::vector<std::string> notes_;
    const std::vector<std::unique_ptr<RunFolder>> folders_;
    const std::unique_ptr<Journal> journal_;  // chores_[0]'s thread, once it runs
    std::optional<Recovered> recovered_;
    std::unique_ptr<WriteLimit> write_limit_;  // null: none
    std::vector<std::unique_ptr<BlockQueue>> queues_;
    std::vector<std::unique_ptr<Ring>> rings_;  // empty: threads

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Generations generations_;
    offload::CommitRecord record_;                 // of the commit under way
    std::optional<offload::CommitRecord> newest_;  // the journal's, for other threads
    std::deque<ActiveTransfer> actives_;           // grows to the most that were in flight at once
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
