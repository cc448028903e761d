// Goal: no result of a request is misread. Method: every kind of result against one block, and
// long random sequences of them, whose progress is counted beside it.
#include "nvme/block.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "nvme/io_error.h"
#include "offload/units.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::page_bytes;
using offload::Result;

class BlockTest : public testing::Test {
  protected:
    std::vector<std::byte> memory_ = std::vector<std::byte>(8 * page_bytes);
    Block block_{.transfer = nullptr,
                 .direction = Direction::read,
                 .offset_bytes = 10 * page_bytes,
                 .memory = memory_};

    std::string error_of(int64_t result) {
        const Result<Progress> progress = advance(block_, result, "/drive/data");
        return progress.ok() ? "" : progress.error().text();
    }
};

TEST_F(BlockTest, WholeIsFinished) {
    EXPECT_EQ(*advance(block_, 8 * page_bytes, "f"), Progress::finished);
    EXPECT_TRUE(block_.memory.empty());
}

TEST_F(BlockTest, ShortGoesOnWhereItEnded) {
    EXPECT_EQ(*advance(block_, 3 * page_bytes, "f"), Progress::again);
    EXPECT_EQ(block_.offset_bytes, 13 * page_bytes);
    EXPECT_EQ(block_.memory.data(), memory_.data() + 3 * page_bytes);
    EXPECT_EQ(block_.memory.size(), 5 * page_bytes);
    EXPECT_EQ(*advance(block_, 5 * page_bytes, "f"), Progress::finished);
}

TEST_F(BlockTest, ProgressIsCountedInWholePages) {
    EXPECT_EQ(*advance(block_, 2 * page_bytes + 777, "f"), Progress::again);
    EXPECT_EQ(block_.memory.size(), 6 * page_bytes);
}

TEST_F(BlockTest, NothingBeforeTheEndIsAnErrorWithItsOffset) {
    ASSERT_TRUE(advance(block_, page_bytes, "f").ok());
    const std::string error = error_of(0);
    EXPECT_NE(error.find("offset 45056 of /drive/data"), std::string::npos) << error;
    EXPECT_NE(error.find("0 bytes"), std::string::npos);
}

TEST_F(BlockTest, RetriesAreBoundedAndProgressForgivesThem) {
    for (int i = 0; i < retries_in_a_row_max; i++) {
        ASSERT_EQ(*advance(block_, i % 2 ? -EINTR : -EAGAIN, "f"), Progress::again);
    }
    ASSERT_EQ(*advance(block_, page_bytes, "f"), Progress::again);
    for (int i = 0; i < retries_in_a_row_max; i++) {
        ASSERT_EQ(*advance(block_, i % 2 ? 100 : -EAGAIN, "f"), Progress::again);
    }
    EXPECT_NE(error_of(-EAGAIN).find("no progress in 65 tries"), std::string::npos);
}

TEST_F(BlockTest, OtherErrorsSayAttemptedNumbersCauseAndRemedy) {
    block_.direction = Direction::write;
    const std::string error = error_of(-EIO);
    EXPECT_NE(error.find("cannot write 32768 bytes at offset 40960 of /drive/data"),
              std::string::npos);
    EXPECT_NE(error.find("EIO (Input/output error)"), std::string::npos);
    EXPECT_NE(error.find("dmesg"), std::string::npos);
    EXPECT_EQ(block_.memory.size(), memory_.size()) << "an error is no progress";
}

TEST(IoError, NamesFreeSpaceWhereThatIsTheMatter) {
    const std::string error = io_error("cannot write", "/tmp", ENOSPC).text();
    EXPECT_NE(error.find("ENOSPC (No space left on device)"), std::string::npos);
    EXPECT_NE(error.find("free there"), std::string::npos);
    EXPECT_GT(free_bytes_at("/tmp"), 0u);
    EXPECT_EQ(free_bytes_at("/no/such/place"), 0u);
}

}  // namespace
}  // namespace headrace::nvme
