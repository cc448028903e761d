#include "nvme/block_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

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
                       std::function<void(ActiveTransfer&)> finished)
    : placement_(placement),
      path_(path),
      writes_in_flight_max_(std::max(1u, depth / 2)),
      finished_(std::move(finished)),
      wake_descriptor_(eventfd(0, EFD_CLOEXEC)) {
    CHECK_LT(path, placement.path_bytes.size());
    CHECK_GE(wake_descriptor_, 0);
}

BlockQueue::~BlockQueue() {
    CHECK(reads_.first == nullptr);
    CHECK(writes_.first == nullptr);
    CHECK_EQ(writes_in_flight_, 0u);
    ::close(wake_descriptor_);
}

void BlockQueue::add(ActiveTransfer& active) {
    {
        std::lock_guard lock(mutex_);
        CHECK(!is_closed_);
        CHECK_GT(active.cursors[path_].block_count, 0u);
        CHECK(active.cursors[path_].next == nullptr);
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

std::optional<Block> BlockQueue::take() {
    std::lock_guard lock(mutex_);
    return take_locked();
}

std::optional<Block> BlockQueue::wait_and_take() {
    std::unique_lock lock(mutex_);
    while (true) {
        if (std::optional<Block> block = take_locked()) return block;
        if (is_closed_ && reads_.first == nullptr && writes_.first == nullptr) return {};
        changed_.wait(lock);
    }
}

std::optional<Block> BlockQueue::take_locked() {
    const bool has_read = reads_.first != nullptr;
    const bool has_write = writes_.first != nullptr;
    if (!has_read && !has_write) return {};
    const bool may_write = has_write && (!has_read || writes_in_flight_ < writes_in_flight_max_);
    const bool is_writes_turn = !has_read || reads_in_a_row_ >= reads_in_a_row_max;
    if (may_write && is_writes_turn) {
        reads_in_a_row_ = 0;
        writes_in_flight_++;
        return take_from(writes_);
    }
    CHECK(has_read);
    reads_in_a_row_ = has_write ? reads_in_a_row_ + 1 : 0;
    return take_from(reads_);
}

Block BlockQueue::take_from(Line& line) {
    ActiveTransfer& active = *line.first;
    ActiveTransfer::Cursor& cursor = active.cursors[path_];
    const std::span<std::byte> memory = active.transfer.memory;
    const uint64_t stripe_bytes = placement_.stripe_bytes;
    const uint64_t block = cursor.next_block;
    CHECK_GT(cursor.block_count, 0u);
    CHECK_LT(block * stripe_bytes, memory.size());

    const BlockAddress address = address_of(placement_, active.copy, block);
    CHECK_EQ(address.path, path_);
    const uint64_t size_bytes =
        std::min<uint64_t>(stripe_bytes, memory.size() - block * stripe_bytes);
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
            .memory = memory.subspan(block * stripe_bytes, size_bytes)};
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
        if (status.ok()) {
            uint64_t& bytes = block.direction == Direction::read ? statistics_.read_bytes
                                                                 : statistics_.write_bytes;
            bytes += size_bytes;
        }
        statistics_.request_count++;
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

}  // namespace headrace::nvme
