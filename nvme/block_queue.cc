#include "nvme/block_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "nvme/clock.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::Direction;

void reset(ActiveTransfer& active, offload::Transfer transfer, CopyId copy,
           const Placement& placement) {
    const uint64_t block_count = offload::div_ceil(transfer.memory.size(), placement.stripe_bytes);
    CHECK_GT(block_count, 0u);
    CHECK_EQ(active.blocks_left.load(), 0u);
    active.transfer = std::move(transfer);
    active.copy = copy;
    active.cursors.assign(placement.path_bytes.size(), {});
    for (uint64_t block = block_count; block-- > 0;) {
        ActiveTransfer::Cursor& cursor = active.cursors[path_of(placement, copy, block)];
        cursor.next_block = block;
        cursor.block_count++;
    }
    active.blocks_left.store(block_count);
    active.has_failed.clear();
    active.outcome = {};
}

BlockQueue::BlockQueue(const Placement& placement, uint32_t path, uint32_t depth,
                       std::function<void(ActiveTransfer&)> finished, WriteLimit* limit)
    : placement_(placement),
      path_(path),
      writes_in_flight_max_(std::max(1u, depth / 2)),
      finished_(std::move(finished)),
      limit_(limit),
      wake_descriptor_(eventfd(0, EFD_CLOEXEC)) {
    CHECK_LT(path, placement.path_bytes.size());
    CHECK_GE(wake_descriptor_, 0);
    in_flight_.reserve(depth);
    free_tickets_.reserve(depth);
}

BlockQueue::~BlockQueue() {
    CHECK(reads_.first == nullptr);
    CHECK(writes_.first == nullptr);
    CHECK_EQ(writes_in_flight_, 0u);
    CHECK_EQ(free_tickets_.size(), in_flight_.size());
    ::close(wake_descriptor_);
}

void BlockQueue::add(ActiveTransfer& active) {
    {
        std::lock_guard lock(mutex_);
        CHECK(!is_closed_);
        CHECK_GT(active.cursors[path_].block_count, 0u);
        CHECK(active.cursors[path_].next == nullptr);
        if (is_empty() && free_tickets_.size() == in_flight_.size()) idle_since_ns_ = now_ns();
        Line& line = active.transfer.direction == Direction::read ? reads_ : writes_;
        if (line.last != nullptr) {
            line.last->cursors[path_].next = &active;
        } else {
            line.first = &active;
        }
        line.last = &active;
    }
    wake();
}

void BlockQueue::close() {
    {
        std::lock_guard lock(mutex_);
        is_closed_ = true;
    }
    wake();
}

void BlockQueue::wake() {
    changed_.notify_all();
    CHECK_EQ(eventfd_write(wake_descriptor_, 1), 0);
}

bool BlockQueue::is_closed() const {
    std::lock_guard lock(mutex_);
    return is_closed_;
}

bool BlockQueue::is_done() const {
    std::lock_guard lock(mutex_);
    return is_closed_ && is_empty();
}

std::optional<uint64_t> BlockQueue::retry_at_ns() const {
    std::lock_guard lock(mutex_);
    return retry_at_ns_;
}

std::optional<Block> BlockQueue::take() {
    std::lock_guard lock(mutex_);
    return take_locked();
}

std::optional<Block> BlockQueue::wait_and_take() {
    std::unique_lock lock(mutex_);
    while (true) {
        if (std::optional<Block> block = take_locked()) return block;
        if (is_closed_ && is_empty()) return {};
        if (retry_at_ns_) {
            changed_.wait_until(lock, std::chrono::steady_clock::time_point(
                                          std::chrono::nanoseconds(*retry_at_ns_)));
        } else {
            changed_.wait(lock);
        }
    }
}

std::optional<Block> BlockQueue::take_locked() {
    const bool has_read = reads_.first != nullptr;
    const bool has_write = writes_.first != nullptr;
    retry_at_ns_.reset();
    if (!has_read && !has_write) return {};
    const uint64_t at_ns = now_ns();
    const bool may_write = has_write && (!has_read || writes_in_flight_ < writes_in_flight_max_);
    const bool is_writes_turn = !has_read || reads_in_a_row_ >= reads_in_a_row_max;
    if (may_write && is_writes_turn && may_go(writes_, at_ns)) {
        reads_in_a_row_ = 0;
        writes_in_flight_++;
        return take_from(writes_, at_ns);
    }
    if (!has_read) {
        CHECK(retry_at_ns_.has_value());  // nothing but the limit holds writes then
        return {};
    }
    reads_in_a_row_ = has_write ? reads_in_a_row_ + 1 : 0;
    return take_from(reads_, at_ns);
}

uint64_t BlockQueue::next_block_bytes(const Line& line) const {
    CHECK(line.first != nullptr);
    const uint64_t begin = line.first->cursors[path_].next_block * placement_.stripe_bytes;
    const uint64_t size_bytes = line.first->transfer.memory.size();
    CHECK_LT(begin, size_bytes);
    return std::min<uint64_t>(placement_.stripe_bytes, size_bytes - begin);
}

// Whether the limit lets the next write go, which it is charged for then.
bool BlockQueue::may_go(const Line& writes, uint64_t at_ns) {
    if (limit_ == nullptr || limit_->take(at_ns, next_block_bytes(writes))) return true;
    retry_at_ns_ = limit_->free_at_ns();
    idle_held_until_ns_ = std::max(idle_held_until_ns_, *retry_at_ns_);
    return false;
}

// Depth and busy time up to now; before what is in flight changes.
void BlockQueue::count_time(uint64_t at_ns) {
    CHECK_GE(at_ns, counted_to_ns_);
    const uint64_t depth = in_flight_.size() - free_tickets_.size();
    if (depth > 0) {
        statistics_.busy_ns += at_ns - counted_to_ns_;
        statistics_.depth_ns += depth * (at_ns - counted_to_ns_);
    }
    counted_to_ns_ = at_ns;
}

// The drive gets its first block after having had none: was it left waiting, and by whom?
void BlockQueue::count_idle(uint64_t at_ns) {
    if (idle_since_ns_ == 0) return;
    CHECK_GE(at_ns, idle_since_ns_);
    const uint64_t held_to_ns = std::clamp(idle_held_until_ns_, idle_since_ns_, at_ns);
    const uint64_t stalled_ns = at_ns - held_to_ns;
    statistics_.limited_ns += held_to_ns - idle_since_ns_;
    if (stalled_ns >= stall_ns_min) {
        statistics_.stall_count++;
        statistics_.stall_ns += stalled_ns;
    }
    idle_since_ns_ = 0;
    idle_held_until_ns_ = 0;
}

Block BlockQueue::take_from(Line& line, uint64_t at_ns) {
    ActiveTransfer& active = *line.first;
    ActiveTransfer::Cursor& cursor = active.cursors[path_];
    const std::span<std::byte> memory = active.transfer.memory;
    const uint64_t stripe_bytes = placement_.stripe_bytes;
    const uint64_t block = cursor.next_block;
    CHECK_GT(cursor.block_count, 0u);
    CHECK_LT(block * stripe_bytes, memory.size());

    const BlockAddress address = address_of(placement_, active.copy, block);
    CHECK_EQ(address.path, path_);
    const uint64_t size_bytes = next_block_bytes(line);
    count_time(at_ns);
    count_idle(at_ns);
    if (free_tickets_.empty()) {
        free_tickets_.push_back(static_cast<uint32_t>(in_flight_.size()));
        in_flight_.emplace_back();
    }
    const uint32_t ticket = free_tickets_.back();
    free_tickets_.pop_back();
    in_flight_[ticket] = {.direction = active.transfer.direction,
                          .place = active.transfer.place,
                          .offset_bytes = address.offset_bytes,
                          .size_bytes = size_bytes,
                          .started_ns = at_ns};
    const auto depth = static_cast<uint32_t>(in_flight_.size() - free_tickets_.size());
    statistics_.depth_max = std::max(statistics_.depth_max, depth);
    cursor.block_count--;
    if (cursor.block_count > 0) {
        do cursor.next_block++;
        while (path_of(placement_, active.copy, cursor.next_block) != path_);
    } else {
        line.first = std::exchange(cursor.next, nullptr);
        if (line.first == nullptr) line.last = nullptr;
    }
    return {.transfer = &active,
            .direction = active.transfer.direction,
            .offset_bytes = address.offset_bytes,
            .memory = memory.subspan(block * stripe_bytes, size_bytes),
            .ticket = ticket};
}

void BlockQueue::finish(const Block& block, uint64_t size_bytes, offload::Status status) {
    CHECK(block.transfer != nullptr);
    ActiveTransfer& active = *block.transfer;
    {
        std::lock_guard lock(mutex_);
        if (block.direction == Direction::write) {
            CHECK_GT(writes_in_flight_, 0u);
            writes_in_flight_--;
        }
        CHECK_LT(block.ticket, in_flight_.size());
        BlockInFlight& flight = in_flight_[block.ticket];
        CHECK_GT(flight.size_bytes, 0u);
        const uint64_t at_ns = now_ns();
        count_time(at_ns);
        const bool is_read = block.direction == Direction::read;
        LatencyHistogram& latency = is_read ? statistics_.read_latency : statistics_.write_latency;
        latency.add(at_ns - flight.started_ns);
        if (status.ok()) {
            (is_read ? statistics_.read_bytes : statistics_.write_bytes) += size_bytes;
        } else {
            statistics_.failed_count++;
        }
        statistics_.request_count++;
        flight = {};
        free_tickets_.push_back(block.ticket);
        if (!is_empty() && free_tickets_.size() == in_flight_.size()) idle_since_ns_ = at_ns;
    }
    if (!status.ok() && !active.has_failed.test_and_set()) active.outcome = std::move(status);
    const uint64_t left = active.blocks_left.fetch_sub(1);
    CHECK_GT(left, 0u);
    if (left == 1) finished_(active);
}

PathStatistics BlockQueue::statistics() const {
    std::lock_guard lock(mutex_);
    return statistics_;
}

std::optional<BlockInFlight> BlockQueue::oldest_in_flight() const {
    std::lock_guard lock(mutex_);
    std::optional<BlockInFlight> oldest;
    for (const BlockInFlight& flight : in_flight_) {
        if (flight.size_bytes == 0) continue;
        if (!oldest || flight.started_ns < oldest->started_ns) oldest = flight;
    }
    return oldest;
}

}  // namespace headrace::nvme
