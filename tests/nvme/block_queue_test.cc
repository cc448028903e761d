// Goal: blocks leave in the promised order, each once, and a transfer ends with its last block.
// Method: one thread plays the drive and writes down what it takes.
#include "nvme/block_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <thread>

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

    std::vector<PlaceSpec> places_ = std::vector<PlaceSpec>(
        4, {.name = "p", .size_bytes = blocks_per_place * page_bytes, .copy_count = 1});
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
    EXPECT_EQ(
        queue.statistics(),
        (PathStatistics{.read_bytes = 12 * page_bytes, .write_bytes = 0, .request_count = 12}));
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
