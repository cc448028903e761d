#include "nvme/nvme_store.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "nvme/calls.h"
#include "nvme/file_system.h"
#include "nvme/format.h"
#include "nvme/io_error.h"
#include "offload/check.h"

namespace headrace::nvme {

using offload::Direction;
using offload::Done;
using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::page_bytes;
using offload::Result;
using offload::Status;
using offload::Transfer;

namespace {

constexpr uint32_t calling_threads_max = 8;

// Asserts what is the caller's to get right; returns what is the user's.
Status check_options(const StoreOptions& options) {
    CHECK_GE(options.depth, 1u);
    CHECK_GT(options.block_bytes, 0u);
    CHECK_EQ(options.block_bytes % page_bytes, 0u);
    CHECK(options.weights.empty() || options.weights.size() == options.paths.size());
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

Status check_budget(const StoreOptions& options, uint64_t needed_bytes) {
    if (needed_bytes <= options.budget_bytes) return {};
    return Error{
        ErrorCode::does_not_fit,
        fmt::format("the store needs {} ({} bytes) in {} and the nvme budget is {} ({} "
                    "bytes)",
                    format_bytes(needed_bytes), needed_bytes, fmt::join(options.paths, ", "),
                    format_bytes(options.budget_bytes), options.budget_bytes),
        "raise nvme_budget, or place less on nvme"};
}

std::array<uint8_t, 16> random_uuid() {
    std::array<uint8_t, 16> uuid{};
    CHECK_EQ(getrandom(uuid.data(), uuid.size(), 0), static_cast<ssize_t>(uuid.size()));
    return uuid;
}

// A failed open leaves no new folder behind.
void undo(const std::vector<std::unique_ptr<RunFolder>>& folders) {
    for (const auto& folder : folders) {
        if (folder->was_made) static_cast<void>(unlink_held(*folder));
    }
}

}  // namespace

uint64_t store_bytes_of(const std::vector<offload::PlaceSpec>& places, size_t path_count) {
    CHECK_GE(path_count, 1u);
    uint64_t bytes = map_bytes_of(places) * path_count;
    for (const offload::PlaceSpec& place : places) bytes += place.size_bytes * place.copy_count;
    return bytes;
}

Result<std::unique_ptr<NvmeStore>> open_store(StoreOptions options) {
    if (Status status = check_options(options); !status) return status.error();
    if (options.weights.empty()) options.weights.assign(options.paths.size(), 1);
    Placement placement = make_placement(options.places, options.weights, options.block_bytes);
    CHECK(find_fault(placement) == nullptr);
    const uint64_t needed_bytes = store_bytes_of(options.places, options.paths.size());
    if (Status status = check_budget(options, needed_bytes); !status) return status.error();
    std::vector<PathNeed> needs;
    for (size_t path = 0; path < options.paths.size(); path++) {
        needs.push_back({.path = options.paths[path],
                         .size_bytes = placement.path_bytes[path] + map_bytes_of(options.places)});
    }
    if (Status status = check_paths(needs, options.run_name); !status) return status.error();

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
    std::unique_ptr<NvmeStore> store(new NvmeStore(options, std::move(placement)));
    store->notes_ = std::move(notes);
    Status status = store->make_folders(options);
    if (status.ok() && options.engine != IoEngine::threads) status = store->make_rings(options);
    if (!status.ok()) {
        undo(store->folders_);
        return status.error();
    }
    store->start_threads(options);
    return store;
}

NvmeStore::NvmeStore(const StoreOptions& options, Placement placement)
    : places_(options.places), placement_(std::move(placement)), states_(places_.size()) {
    CHECK_EQ(placement_.copies.size(), places_.size());
}

Status NvmeStore::make_folders(const StoreOptions& options) {
    for (const std::string& path : options.paths) {
        Result<std::unique_ptr<RunFolder>> folder =
            open_run_folder(path, options.run_name, options.operations);
        if (!folder) return folder.error();
        folders_.push_back(std::move(*folder));
    }
    MapSpec spec{.uuid = random_uuid(),
                 .path_index = 0,
                 .run_name = options.run_name,
                 .owner = this_owner()};
    for (const auto& folder : folders_) {
        const MapImage map = make_map(spec, places_, placement_);
        if (Status status = lay_out(*folder, map, notes_); !status) return status;
        spec.path_index++;
    }
    return {};
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
            constexpr std::array<std::string_view, 3> ops = {"sync", "record", "seal"};
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
    const offload::PlaceSpec& place = places_[transfer.place];
    const bool is_read = transfer.direction == Direction::read;
    ActiveTransfer* active = nullptr;
    {
        std::lock_guard lock(mutex_);
        CHECK(!is_closing_);
        PlaceState& state = states_[transfer.place];
        CHECK_TEXT(state.writers == 0, "a write of the place is in flight: " + place.name);
        CHECK_TEXT(is_read || state.readers == 0,
                   "a read of the place is in flight: " + place.name);
        (is_read ? state.readers : state.writers)++;
        in_flight_count_++;
        active = &take_active();
        const uint64_t written_bytes = state.written_bytes[state.truth];
        if (is_read && written_bytes == 0) {
            active->transfer = std::move(transfer);
            (last_zeros_ != nullptr ? last_zeros_->next : first_zeros_) = active;
            last_zeros_ = active;
            changed_.notify_all();
            return;
        }
        const uint8_t copy = is_read || place.copy_count == 1 ? state.truth : 1 - state.truth;
        if (is_read && written_bytes < transfer.memory.size()) {
            std::ranges::fill(transfer.memory.subspan(written_bytes), std::byte{0});
            transfer.memory = transfer.memory.first(written_bytes);
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
    {
        std::lock_guard lock(mutex_);
        PlaceState& state = states_[place];
        uint32_t& users = is_read ? state.readers : state.writers;
        CHECK_GT(users, 0u);
        users--;
        if (!is_read && outcome.ok()) {
            const uint8_t copy = active.copy.copy;
            const uint64_t kept_bytes = copy == state.truth ? state.written_bytes[copy] : 0;
            state.truth = copy;
            state.written_bytes[copy] =
                std::max<uint64_t>(kept_bytes, active.transfer.memory.size());
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

void NvmeStore::sync(uint32_t path, Done done) {
    CHECK_LT(path, folders_.size());
    chores_[path]->add(ChoreKind::sync, [this, path, done = std::move(done)] {
        done(folders_[path]->data.flush());
    });
}

void NvmeStore::record(const offload::CommitRecord&, Done done) {
    chores_[0]->add(ChoreKind::record, [done = std::move(done)] { done({}); });
}

void NvmeStore::seal(Done done) {
    chores_[0]->add(ChoreKind::seal,
                    [this, done = std::move(done)] { done(folders_[0]->map.flush()); });
}

uint64_t NvmeStore::bytes_on(size_t path) const {
    CHECK_LT(path, placement_.path_bytes.size());
    return placement_.path_bytes[path];
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
        struct stat facts {};
        if (lstat(run_folder_of(path, run_name).c_str(), &facts) != 0) continue;
        Result<std::unique_ptr<RunFolder>> folder = open_run_folder(path, run_name, {});
        if (!folder) return folder.error();
        held.push_back(std::move(*folder));
    }
    for (const auto& folder : held) {
        if (Status status = unlink_held(*folder); !status) return status;
    }
    return {};
}

}  // namespace headrace::nvme
