// Goal: blocks leave in the promised order, each once, a transfer ends with its last block, and the
// statistics say what happened. Method: one thread plays the drive and writes down what it takes.
#include "nvme/block_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <string>
#include <thread>

#include "nvme/clock.h"
#include "offload/units.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::page_bytes;
using offload::PlaceSpec;

class BlockQueueTest : public testing::Test {
  protected:
    static constexpr uint64_t blocks_per_place = 4;

    ActiveTransfer& add(BlockQueue& queue, Direction direction, offload::PlaceId place) {
        ActiveTransfer& active = actives_.emplace_back();
        reset(active, {.direction = direction, .place = place, .memory = memory_, .done = nullptr},
              {.place = place, .copy = 0}, placement_);
        queue.add(active);
        return active;
    }

    // "r0" for a block of a read of place 0.
    std::string take(BlockQueue& queue) {
        const std::optional<Block> block = queue.take();
        if (!block) return "";
        taken_.push_back(*block);
        return (block->direction == Direction::read ? "r" : "w") +
               std::to_string(block->transfer->transfer.place);
    }
    void finish_all(BlockQueue& queue) {
        for (const Block& block : taken_) queue.finish(block, block.memory.size(), {});
        taken_.clear();
    }

    std::vector<PlaceSpec> places_ =
        std::vector<PlaceSpec>(4, {.name = "p",
                                   .size_bytes = blocks_per_place * page_bytes,
                                   .copies = offload::Copies::scratch});
    Placement placement_ = make_placement(places_, {1}, page_bytes);
    std::vector<std::byte> memory_ = std::vector<std::byte>(blocks_per_place * page_bytes);
    std::deque<ActiveTransfer> actives_;
    std::vector<Block> taken_;
    std::vector<offload::PlaceId> finished_;
    std::function<void(ActiveTransfer&)> note_ = [this](ActiveTransfer& active) {
        finished_.push_back(active.transfer.place);
    };
};

TEST_F(BlockQueueTest, TransfersLeaveInStartOrderBlockByBlock) {
    BlockQueue queue(placement_, 0, 8, note_);
    add(queue, Direction::read, 0);
    add(queue, Direction::read, 1);
    for (const char* expected : {"r0", "r0", "r0", "r0", "r1", "r1"}) {
        EXPECT_EQ(take(queue), expected);
    }
    add(queue, Direction::read, 2);
    for (const char* expected : {"r1", "r1", "r2", "r2", "r2", "r2", ""}) {
        EXPECT_EQ(take(queue), expected);
    }
    for (uint64_t i = 0; i < taken_.size(); i++) {
        EXPECT_EQ(taken_[i].offset_bytes, i * page_bytes);
        EXPECT_EQ(taken_[i].memory.data(), memory_.data() + i % blocks_per_place * page_bytes);
    }
    finish_all(queue);
    EXPECT_EQ(finished_, (std::vector<offload::PlaceId>{0, 1, 2}));
    const PathStatistics statistics = queue.statistics();
    EXPECT_EQ(statistics.read_bytes, 12 * page_bytes);
    EXPECT_EQ(statistics.write_bytes, 0u);
    EXPECT_EQ(statistics.request_count, 12u);
    EXPECT_EQ(statistics.read_latency.count(), 12u);
    EXPECT_EQ(statistics.write_latency.count(), 0u);
    EXPECT_EQ(statistics.failed_count, 0u);
    EXPECT_EQ(statistics.depth_max, 12u);
    EXPECT_FALSE(queue.oldest_in_flight().has_value());
}

TEST_F(BlockQueueTest, ReadsOvertakeWritesWithinTheBound) {
    BlockQueue queue(placement_, 0, 8, note_);
    add(queue, Direction::write, 0);
    add(queue, Direction::read, 1);
    add(queue, Direction::read, 2);
    for (const char* expected : {"r1", "r1", "r1", "w0", "r1", "r2", "r2", "w0", "r2", "r2"}) {
        EXPECT_EQ(take(queue), expected);
    }
    EXPECT_EQ(take(queue), "w0");  // no read waits: nothing holds the writes
    EXPECT_EQ(take(queue), "w0");
    finish_all(queue);
    EXPECT_EQ(finished_.size(), 3u);
}

TEST_F(BlockQueueTest, WritesTakeHalfOfTheDepthWhileReadsWait) {
    BlockQueue queue(placement_, 0, 2, note_);
    add(queue, Direction::write, 0);
    EXPECT_EQ(take(queue), "w0");
    add(queue, Direction::read, 1);
    add(queue, Direction::read, 2);
    for (int i = 0; i < 8; i++) EXPECT_EQ(take(queue)[0], 'r') << i;
    EXPECT_EQ(take(queue), "w0");
    EXPECT_EQ(take(queue), "w0");
    EXPECT_EQ(take(queue), "w0");
    finish_all(queue);
}

TEST_F(BlockQueueTest, TheFirstErrorOfATransferIsItsOutcome) {
    BlockQueue queue(placement_, 0, 8, note_);
    ActiveTransfer& active = add(queue, Direction::write, 3);
    while (!take(queue).empty()) {
    }
    queue.finish(taken_[0], page_bytes, {});
    queue.finish(taken_[1], page_bytes, offload::Error{.what = "first", .cause = ""});
    queue.finish(taken_[2], page_bytes, offload::Error{.what = "second", .cause = ""});
    EXPECT_TRUE(finished_.empty()) << "a failed transfer ends with its last block too";
    queue.finish(taken_[3], page_bytes, {});
    ASSERT_EQ(finished_.size(), 1u);
    EXPECT_EQ(active.outcome.error().what, "first");
    EXPECT_EQ(queue.statistics().write_bytes, 2 * page_bytes);
    EXPECT_EQ(queue.statistics().failed_count, 2u);
}

constexpr auto long_enough = std::chrono::milliseconds(5);  // to be a stall
static_assert(long_enough > std::chrono::nanoseconds(stall_ns_min));

// Two blocks in flight for a while, then one, then none though blocks wait, then none that wait.
TEST_F(BlockQueueTest, DepthLatencyAndStallsAreCounted) {
    BlockQueue queue(placement_, 0, 8, note_);
    add(queue, Direction::read, 0);
    take(queue);
    take(queue);
    std::this_thread::sleep_for(2 * long_enough);
    queue.finish(taken_[0], page_bytes, {});
    std::this_thread::sleep_for(long_enough);
    queue.finish(taken_[1], page_bytes, {});
    const PathStatistics before = queue.statistics();
    std::this_thread::sleep_for(long_enough);  // the drive has nothing, and two blocks wait
    taken_.clear();
    take(queue);
    take(queue);
    const PathStatistics stalled = queue.statistics();
    finish_all(queue);
    std::this_thread::sleep_for(long_enough);  // nothing waits: nobody is to blame
    add(queue, Direction::read, 1);
    EXPECT_EQ(take(queue), "r1");
    finish_all(queue);

    const auto ns = [](auto duration) {
        return static_cast<uint64_t>(std::chrono::nanoseconds(duration).count());
    };
    EXPECT_EQ(before.stall_count, 0u);
    EXPECT_EQ(before.depth_max, 2u);
    EXPECT_GE(before.busy_ns, ns(3 * long_enough));
    EXPECT_GE(before.depth_ns, before.busy_ns + ns(2 * long_enough));
    EXPECT_GT(before.depth_mean(), 1.0);
    EXPECT_LT(before.depth_mean(), 2.0);
    EXPECT_GE(before.read_latency.max_ns(), ns(3 * long_enough));
    EXPECT_GE(before.read_latency.percentile_ns(50), ns(2 * long_enough));
    EXPECT_EQ((stalled - before).stall_count, 1u);
    EXPECT_GE((stalled - before).stall_ns, ns(long_enough));
    EXPECT_LT((stalled - before).busy_ns, stall_ns_min) << "between two takes";
    EXPECT_LE(queue.statistics().stall_count, 2u)
        << "a busy machine may add one, between two lines";
    while (!take(queue).empty()) {
    }
    finish_all(queue);
}

TEST_F(BlockQueueTest, TheOldestInFlightIsKnown) {
    BlockQueue queue(placement_, 0, 8, note_);
    EXPECT_FALSE(queue.oldest_in_flight().has_value());
    add(queue, Direction::write, 2);
    EXPECT_FALSE(queue.oldest_in_flight().has_value()) << "waiting is not in flight";
    const uint64_t before_ns = now_ns();
    while (!take(queue).empty()) {
    }
    queue.finish(taken_[0], page_bytes, {});
    const std::optional<BlockInFlight> oldest = queue.oldest_in_flight();
    ASSERT_TRUE(oldest.has_value());
    EXPECT_EQ(oldest->place, 2u);
    EXPECT_EQ(oldest->direction, Direction::write);
    EXPECT_EQ(oldest->offset_bytes, taken_[1].offset_bytes);
    EXPECT_EQ(oldest->size_bytes, page_bytes);
    EXPECT_GE(oldest->started_ns, before_ns);
    EXPECT_LE(oldest->started_ns, now_ns());
    taken_.erase(taken_.begin());
    finish_all(queue);
}

// One block each 20 ms may be written. While it is held, reads go, beyond the bound; once it is due
// it goes before the reads that wait.
TEST_F(BlockQueueTest, TheWriteLimitHoldsWritesAndReadsGoInTheirPlace) {
    WriteLimit limit(page_bytes * 50);
    ASSERT_TRUE(limit.take(now_ns(), 2 * page_bytes));  // 20 ms of debt, after the credit
    BlockQueue queue(placement_, 0, 8, note_, &limit);
    add(queue, Direction::write, 0);
    EXPECT_EQ(take(queue), "");
    const std::optional<uint64_t> retry_at_ns = queue.retry_at_ns();
    ASSERT_TRUE(retry_at_ns.has_value());
    EXPECT_EQ(*retry_at_ns, limit.free_at_ns());
    add(queue, Direction::read, 1);
    add(queue, Direction::read, 2);
    std::string order;
    for (int i = 0; i < 6 && now_ns() < *retry_at_ns; i++) order += take(queue);
    EXPECT_EQ(order.find('w'), std::string::npos) << order;
    while (now_ns() < *retry_at_ns) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(take(queue), "w0") << "due, after more reads than the bound";
    while (queue.statistics().write_latency.count() < blocks_per_place) {
        finish_all(queue);
        if (take(queue).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GT(queue.statistics().limited_ns, 0u);
}

// The waiting thread wakes by itself when the limit lets go. Five blocks of 5 ms, less the credit.
TEST_F(BlockQueueTest, AHeldWriteIsWaitedFor) {
    WriteLimit limit(page_bytes * 200);
    ASSERT_TRUE(limit.take(now_ns(), 5 * page_bytes));
    BlockQueue queue(placement_, 0, 8, note_, &limit);
    add(queue, Direction::write, 0);
    queue.close();
    const uint64_t before_ns = now_ns();
    while (const std::optional<Block> block = queue.wait_and_take()) {
        queue.finish(*block, block->memory.size(), {});
    }
    EXPECT_GE(now_ns() - before_ns, 15'000'000u);
    EXPECT_EQ(finished_.size(), 1u);
    EXPECT_TRUE(queue.is_done());
}

TEST_F(BlockQueueTest, CloseEndsTheWaitOnceAllIsTaken) {
    BlockQueue queue(placement_, 0, 8, note_);
    add(queue, Direction::write, 0);
    uint64_t count = 0;
    std::thread drive([&] {
        while (const std::optional<Block> block = queue.wait_and_take()) {
            count++;
            queue.finish(*block, block->memory.size(), {});
        }
    });
    queue.close();
    drive.join();
    EXPECT_EQ(count, blocks_per_place);
}

}  // namespace
}  // namespace headrace::nvme
