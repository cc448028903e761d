#include "nvme/nvme_store.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "nvme/calls.h"
#include "nvme/file_system.h"
#include "nvme/huge_pages.h"
#include "nvme/io_buffer.h"
#include "nvme/io_error.h"
#include "nvme/promotion.h"
#include "offload/check.h"
#include "offload/page_sum.h"

namespace headrace::nvme {

using offload::Direction;
using offload::Done;
using offload::Error;
using offload::ErrorCode;
using offload::page_bytes;
using offload::Result;
using offload::Status;
using offload::Transfer;

namespace {

constexpr uint32_t calling_threads_max = 8;

Error damage_error() {
    return Error{ErrorCode::bad_data, "its bytes are not those that were committed",
                 "the drive or somebody else changed them: see dmesg and smartctl, and go back to "
                 "the commit before or to a checkpoint"};
}

// Asserts what is the caller's to get right; returns what is the user's.
Status check_options(const StoreOptions& options) {
    CHECK_GE(options.depth, 1u);
    CHECK_GT(options.block_bytes, 0u);
    CHECK_EQ(options.block_bytes % page_bytes, 0u);
    const bool has_weights = options.opening != Opening::resume && !options.weights.empty();
    CHECK(!has_weights || options.weights.size() == options.paths.size());
    if (options.paths.empty()) {
        return Error{ErrorCode::usage, "the store has no path",
                     "set nvme_paths to a folder on each drive"};
    }
    if (options.paths.size() > path_count_max) {
        return Error{ErrorCode::usage, fmt::format("the store has {} paths", options.paths.size()),
                     fmt::format("it can use {}", path_count_max)};
    }
    for (const std::string& path : options.paths) {
        if (path.empty()) return Error{ErrorCode::usage, "an NVMe path is empty", "name a folder"};
    }
    return check_run_name(options.run_name);
}

}  // namespace

Result<std::unique_ptr<NvmeStore>> open_store(StoreOptions options) {
    if (Status status = check_options(options); !status) return status.error();
    Result<std::vector<std::string>> noted = check_file_systems(options.paths);
    if (!noted) return noted.error();
    std::vector<std::string> notes = std::move(*noted);
    if (options.engine != IoEngine::threads) {
        const Status usable = probe_io_uring();
        if (!usable && options.engine == IoEngine::uring) return usable.error();
        if (!usable) {
            notes.push_back("threads instead of io_uring: " + usable.error().text());
            options.engine = IoEngine::threads;
        }
    }
    if (options.opening != Opening::successor) {
        Status status = finish_promotion(options.paths, options.run_name, options.operations);
        if (!status) return status.error();
    }
    const bool is_resume = options.opening == Opening::resume;
    Result<StoreFiles> files =
        is_resume ? resume_store_files(options, notes) : make_store_files(options, notes);
    if (!files) return files.error();
    std::unique_ptr<NvmeStore> store(new NvmeStore(options, std::move(*files)));
    store->notes_ = std::move(notes);
    Status status;
    if (options.engine != IoEngine::threads) status = store->make_rings(options);
    if (!status.ok()) {
        remove_new(store->folders_);
        return status.error();
    }
    const std::string note = huge_page_note(options.buffers);
    if (!note.empty()) store->notes_.push_back(note);
    store->start_threads(options);
    if (is_resume) status = store->recover(options.attempts);
    if (!status.ok()) return status.error();
    return store;
}

NvmeStore::NvmeStore(const StoreOptions& options, StoreFiles files)
    : places_(options.places),
      placement_(std::move(files.placement)),
      folders_(std::move(files.folders)),
      journal_(std::move(files.journal)),
      generations_(places_, static_cast<uint32_t>(folders_.size())) {
    CHECK_EQ(placement_.copies.size(), places_.size());
    CHECK(journal_ != nullptr);
}

Status NvmeStore::recover(std::optional<uint64_t> attempts) {
    const std::string attempted = "cannot resume the store " + folders_[0]->folder;
    const std::optional<Commit>& newest = journal_->newest();
    if (!newest) {
        return Error{ErrorCode::bad_data, attempted,
                     "it holds no commit: it ended before its first one; begin anew"};
    }
    const std::optional<Commit>& older = journal_->older();
    const bool is_older = attempts && older && older->record.attempts == *attempts &&
                          newest->record.attempts != *attempts;
    if (attempts && !is_older && newest->record.attempts != *attempts) {
        const std::string kept =
            older ? fmt::format("{} and {}", older->record.attempts, newest->record.attempts)
                  : fmt::format("{} only", newest->record.attempts);
        return Error{ErrorCode::bad_data, fmt::format("{} at step {}", attempted, *attempts),
                     "its commits are of step " + kept};
    }
    if (is_older) {
        const uint64_t newest_attempts = newest->record.attempts;
        if (Status status = step_back(); !status) {
            return wrap(status.error(), fmt::format("{} at step {}: only step {} is left, because "
                                                    "the next one had begun",
                                                    attempted, *attempts, newest_attempts));
        }
        const std::lock_guard lock(mutex_);
        learn_newest();
        recovered_ = {.record = journal_->newest()->record, .other_attempts = {}};
        return {};
    }
    const std::lock_guard lock(mutex_);
    generations_.restore(*newest);
    learn_newest();
    recovered_ = {.record = newest->record, .other_attempts = {}};
    if (older) recovered_->other_attempts = older->record.attempts;
    return {};
}

// To the older commit, if its bytes are still there: what the newer one did not change it shares
// with it, the rest is read and its sums are verified. Then the newer one is erased, before
// anything is written over what it names.
Status NvmeStore::step_back() {
    const Commit newest = *journal_->newest();
    const Commit& older = *journal_->older();
    generations_.restore(older);
    for (size_t i = 0; i < older.places.size(); i++) {
        if (!older.places[i].is_written || older.places[i] == newest.places[i]) continue;
        const offload::PlaceId place = generations_.durable()[i];
        const IoBuffer buffer(places_[place].size_bytes);
        Status status = transfer_and_wait(*this, Direction::read, place,
                                          buffer.first(places_[place].size_bytes));
        if (!status.ok()) return status;
    }
    return journal_->forget_newest();
}

Status NvmeStore::make_rings(const StoreOptions& options) {
    const RingOptions ring_options{
        .depth = options.depth, .buffers = options.buffers, .registration = options.registration};
    for (const auto& folder : folders_) {
        Result<Ring> ring = Ring::make(folder->data, ring_options, notes_);
        if (!ring) return ring.error();
        rings_.push_back(std::make_unique<Ring>(std::move(*ring)));
    }
    return {};
}

void NvmeStore::start_threads(const StoreOptions& options) {
    const uint32_t thread_count = rings_.empty() ? std::min(options.depth, calling_threads_max) : 1;
    const uint32_t depth = rings_.empty() ? thread_count : options.depth;
    if (options.write_bytes_per_s_max != std::numeric_limits<uint64_t>::max()) {
        write_limit_ = std::make_unique<WriteLimit>(options.write_bytes_per_s_max);
    }
    for (uint32_t path = 0; path < folders_.size(); path++) {
        queues_.push_back(std::make_unique<BlockQueue>(
            placement_, path, depth, [this](ActiveTransfer& active) { finish(active); },
            write_limit_.get()));
    }
    for (size_t path = 0; path < folders_.size(); path++) {
        chores_.push_back(std::make_unique<Chores>());
        BlockQueue& queue = *queues_[path];
        if (!rings_.empty()) {
            threads_.emplace_back([&ring = *rings_[path], &queue] { ring.serve(queue); });
            continue;
        }
        for (uint32_t i = 0; i < thread_count; i++) {
            threads_.emplace_back(
                [&queue, &file = folders_[path]->data] { serve_with_calls(queue, file); });
        }
    }
    threads_.emplace_back([this] { serve_zeros(); });
    if (!options.on_stuck) return;
    watchdog_ = std::make_unique<Watchdog>(
        static_cast<uint64_t>(options.stuck_after.count()), [this] { return oldest_pending(); },
        options.on_stuck);
}

NvmeStore::~NvmeStore() {
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return in_flight_count_ == 0; });
        is_closing_ = true;
        changed_.notify_all();
    }
    for (const auto& chores : chores_) chores->drain();
    for (const auto& queue : queues_) queue->close();
    threads_.clear();
    CHECK_EQ(in_flight_count_, 0u);
    watchdog_.reset();  // what could be stuck is over
    chores_.clear();
}

void abandon(std::unique_ptr<NvmeStore> store) {
    CHECK(store != nullptr);
    static_cast<void>(store.release());
}

// Of everything that a drive has been asked for; on the watchdog's thread.
std::optional<Pending> NvmeStore::oldest_pending() const {
    std::optional<Pending> oldest;
    const auto is_older = [&oldest](uint64_t started_ns) {
        return !oldest || started_ns < oldest->started_ns;
    };
    for (size_t path = 0; path < queues_.size(); path++) {
        const std::optional<BlockInFlight> block = queues_[path]->oldest_in_flight();
        if (block && is_older(block->started_ns)) {
            const bool is_read = block->direction == Direction::read;
            oldest = {.lane = is_read ? "nvme_read" : "nvme_write",
                      .op = is_read ? "fetch" : "evict",
                      .place = places_[block->place].name,
                      .path = folders_[path]->data.path(),
                      .offset_bytes = block->offset_bytes,
                      .size_bytes = block->size_bytes,
                      .started_ns = block->started_ns};
        }
        const std::optional<RunningChore> chore = chores_[path]->running();
        if (chore && is_older(chore->started_ns)) {
            constexpr std::array<std::string_view, 4> ops = {"sync", "record", "seal", "withdraw"};
            const bool is_sync = chore->kind == ChoreKind::sync;
            const DirectFile& file = is_sync ? folders_[path]->data : folders_[path]->map;
            oldest = {.lane = "nvme_write",
                      .op = ops[static_cast<size_t>(chore->kind)],
                      .place = {},
                      .path = file.path(),
                      .started_ns = chore->started_ns};
        }
    }
    return oldest;
}

ActiveTransfer& NvmeStore::take_active() {
    if (free_active_ == nullptr) return actives_.emplace_back();
    ActiveTransfer& active = *free_active_;
    free_active_ = std::exchange(active.next, nullptr);
    return active;
}

void NvmeStore::give_back(ActiveTransfer& active) {
    CHECK(active.next == nullptr);
    CHECK_EQ(active.blocks_left.load(), 0u);
    active.next = free_active_;
    free_active_ = &active;
}

void NvmeStore::start(Transfer transfer) {
    CHECK_LT(transfer.place, places_.size());
    CHECK(transfer.done != nullptr);
    CHECK(!transfer.memory.empty());
    CHECK_EQ(transfer.memory.size() % page_bytes, 0u);
    CHECK_LE(transfer.memory.size(), places_[transfer.place].size_bytes);
    CHECK_EQ(reinterpret_cast<uintptr_t>(transfer.memory.data()) % page_bytes, 0u);
    const bool is_read = transfer.direction == Direction::read;
    const bool is_durable_write = !is_read && is_durable(places_[transfer.place].copies);
    if (is_read) transfer.sum.reset();
    if (is_durable_write && !transfer.sum) transfer.sum = offload::page_sum(transfer.memory);
    ActiveTransfer* active = nullptr;
    {
        std::lock_guard lock(mutex_);
        CHECK(!is_closing_);
        if (is_durable_write && generations_.fault()) {
            return refuse(std::move(transfer.done), *generations_.fault());
        }
        in_flight_count_++;
        active = &take_active();
        uint8_t copy = 0;
        if (is_read) {
            const Generations::Reading reading =
                generations_.begin_read(transfer.place, transfer.memory.size());
            if (reading.size_bytes == 0) {
                active->transfer = std::move(transfer);
                (last_zeros_ != nullptr ? last_zeros_->next : first_zeros_) = active;
                last_zeros_ = active;
                changed_.notify_all();
                return;
            }
            std::ranges::fill(transfer.memory.subspan(reading.size_bytes), std::byte{0});
            transfer.memory = transfer.memory.first(reading.size_bytes);
            transfer.sum = reading.sum;
            copy = reading.copy;
        } else {
            copy = generations_.begin_write(transfer.place);
        }
        const CopyId id{.place = transfer.place, .copy = copy};
        reset(*active, std::move(transfer), id, placement_);
    }
    // Once its last path has it, the transfer may be over at any moment.
    size_t last_path = queues_.size() - 1;
    while (active->cursors[last_path].block_count == 0) last_path--;
    for (size_t path = 0; path < last_path; path++) {
        if (active->cursors[path].block_count > 0) queues_[path]->add(*active);
    }
    queues_[last_path]->add(*active);
}

void NvmeStore::finish(ActiveTransfer& active) {
    const bool is_read = active.transfer.direction == Direction::read;
    const offload::PlaceId place = active.transfer.place;
    std::function<void(Status)> done = std::move(active.transfer.done);
    Status outcome = std::exchange(active.outcome, {});
    if (is_read && outcome.ok() && active.transfer.sum &&
        offload::page_sum(active.transfer.memory) != *active.transfer.sum) {
        outcome = damage_error();
    }
    {
        std::lock_guard lock(mutex_);
        if (is_read) {
            generations_.end_read(place, outcome.ok() && active.transfer.sum.has_value());
        } else {
            generations_.end_write(place,
                                   {.copy = active.copy.copy,
                                    .size_bytes = active.transfer.memory.size(),
                                    .sum = active.transfer.sum.value_or(0)},
                                   outcome.ok());
        }
        give_back(active);
    }
    if (!outcome.ok()) {
        outcome =
            wrap(outcome.error(), fmt::format("cannot {} the place '{}'",
                                              is_read ? "read" : "write", places_[place].name));
    }
    done(std::move(outcome));
    done = nullptr;  // what it holds goes before the store may
    std::lock_guard lock(mutex_);
    CHECK_GT(in_flight_count_, 0u);
    in_flight_count_--;
    if (in_flight_count_ == 0) changed_.notify_all();
}

// Its own thread: `done` must not be called inside start(), and no drive's thread has the time.
void NvmeStore::serve_zeros() {
    while (true) {
        ActiveTransfer* active = nullptr;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return first_zeros_ != nullptr || is_closing_; });
            if (first_zeros_ == nullptr) return;
            active = first_zeros_;
            first_zeros_ = std::exchange(active->next, nullptr);
            if (first_zeros_ == nullptr) last_zeros_ = nullptr;
        }
        CHECK_EQ(active->transfer.direction, Direction::read);
        std::memset(active->transfer.memory.data(), 0, active->transfer.memory.size());
        finish(*active);
    }
}

void NvmeStore::refuse(Done done, Error error) {
    chores_[0]->add(ChoreKind::record,
                    [done = std::move(done), error = std::move(error)] { done(error); });
}

void NvmeStore::sync(uint32_t path, Done done) {
    CHECK_LT(path, folders_.size());
    std::lock_guard lock(mutex_);
    if (generations_.fault()) return refuse(std::move(done), *generations_.fault());
    const uint64_t begun_at = generations_.begin_sync();
    chores_[path]->add(ChoreKind::sync, [this, path, begun_at, done = std::move(done)] {
        const Status status = folders_[path]->data.flush();
        {
            std::lock_guard chore_lock(mutex_);
            if (status.ok()) {
                generations_.end_sync(path, begun_at);
            } else {
                generations_.fail(status.error());
            }
        }
        done(status);
    });
}

void NvmeStore::record(const offload::CommitRecord& record, Done done) {
    std::lock_guard lock(mutex_);
    if (generations_.fault()) return refuse(std::move(done), *generations_.fault());
    record_ = record;
    const std::vector<PlaceTruth>& truths = generations_.begin_record();
    chores_[0]->add(ChoreKind::record, [this, &truths, done = std::move(done)] {
        const Status status = journal_->record(record_, truths);
        if (!status.ok()) {
            std::lock_guard chore_lock(mutex_);
            generations_.fail(status.error());
        }
        done(status);
    });
}

void NvmeStore::seal(Done done) {
    std::lock_guard lock(mutex_);
    if (generations_.fault()) return refuse(std::move(done), *generations_.fault());
    chores_[0]->add(ChoreKind::seal, [this, done = std::move(done)] {
        const Status status = journal_->seal();
        {
            std::lock_guard chore_lock(mutex_);
            if (status.ok()) {
                generations_.end_seal();
            } else {
                generations_.fail(status.error());
            }
            learn_newest();
        }
        done(status);
    });
}

void NvmeStore::withdraw(Done done) {
    std::lock_guard lock(mutex_);
    if (generations_.fault()) return refuse(std::move(done), *generations_.fault());
    chores_[0]->add(ChoreKind::withdraw, [this, done = std::move(done)] {
        const Status status = journal_->forget_all();
        {
            std::lock_guard chore_lock(mutex_);
            if (status.ok()) {
                generations_.withdraw();
            } else {
                generations_.fail(status.error());
            }
            learn_newest();
        }
        done(status);
    });
}

std::optional<offload::CommitRecord> NvmeStore::newest_commit() const {
    std::lock_guard lock(mutex_);
    return newest_;
}

void NvmeStore::learn_newest() {
    const std::optional<Commit>& newest = journal_->newest();
    if (newest) {
        newest_ = newest->record;  // into the memory of the one before
    } else {
        newest_.reset();
    }
}

const Uuid& NvmeStore::uuid() const {
    return journal_->uuid();
}

const std::string& NvmeStore::path_name(size_t path) const {
    CHECK_LT(path, folders_.size());
    return folders_[path]->path;
}

void NvmeStore::let_go_in_child() {
    for (const auto& ring : rings_) ring->let_go_in_child();
    for (const auto& folder : folders_) {
        folder->map.let_go_in_child();
        folder->data.let_go_in_child();
    }
}

uint64_t NvmeStore::bytes_on(size_t path) const {
    CHECK_LT(path, placement_.path_bytes.size());
    return placement_.path_bytes[path];
}

Status NvmeStore::unlink_names() {
    for (const auto& folder : folders_) {
        if (Status status = unlink_held(*folder); !status) return status;
    }
    return {};
}

std::string NvmeStore::data_file(size_t path) const {
    CHECK_LT(path, folders_.size());
    return fmt::format("/proc/self/fd/{}", folders_[path]->data.descriptor());
}

bool NvmeStore::is_buffered(size_t path) const {
    CHECK_LT(path, folders_.size());
    return folders_[path]->data.is_buffered();
}

PathStatistics NvmeStore::statistics(size_t path) const {
    CHECK_LT(path, queues_.size());
    PathStatistics statistics = queues_[path]->statistics();
    statistics.sync_latency = chores_[path]->sync_latency();
    return statistics;
}

uint64_t NvmeStore::registered_bytes() const {
    return rings_.empty() ? 0 : rings_[0]->registered_bytes();
}

Status remove_store(const std::vector<std::string>& paths, const std::string& run_name) {
    if (Status status = check_run_name(run_name); !status) return status;
    std::vector<std::unique_ptr<RunFolder>> held;
    for (const std::string& path : paths) {
        for (const Role role : {Role::successor, Role::truth}) {
            struct stat facts {};
            if (lstat(run_folder_of(path, run_name, role).c_str(), &facts) != 0) continue;
            Result<std::unique_ptr<RunFolder>> folder = open_run_folder(
                {.path = path, .run_name = run_name, .role = role}, Existence::may_be_made, {});
            if (!folder) return folder.error();
            held.push_back(std::move(*folder));
        }
    }
    for (const auto& folder : held) {
        if (Status status = unlink_held(*folder); !status) return status;
    }
    return {};
}

}  // namespace headrace::nvme
