// Goal: a commit is found again whole or not at all, and never endangers the one before it. Method:
// areas taken apart byte by byte, then a real map file: every byte torn, both orders of the two
// areas, errors of the write and of the flush.
#include "nvme/journal.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "offload/units.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::mib;

const AreaId first_area{.uuid = {7}, .area = 0, .place_count = 3};

// FORMAT.md's worked example.
Commit example() {
    return {.sequence = 5,
            .record = {.attempts = 40,
                       .updates = 38,
                       .gradient_scale = 1024,
                       .scale_steps = 6,
                       .numerics = R"({"engine":2})",
                       .payload = std::string("a\0b", 3)},
            .places = {{.is_written = true, .copy = 1, .sum = 11},
                       {},
                       {.is_written = true, .copy = 0, .sum = 33}}};
}

template <typename Value>
Value at(const std::vector<std::byte>& bytes, uint64_t offset_bytes) {
    Value value;
    std::memcpy(&value, bytes.data() + offset_bytes, sizeof(value));
    return value;
}

std::vector<std::byte> encoded(const Commit& commit, const AreaId& id) {
    std::vector<std::byte> area(commit_area_bytes_of(id.place_count), std::byte{0xEE});
    encode(commit, id, area);
    return area;
}

TEST(Journal, AnAreaLiesAsThePageSays) {
    const std::vector<std::byte> area = encoded(example(), first_area);
    ASSERT_EQ(area.size(), 8192u);
    EXPECT_EQ(std::memcmp(area.data(), "HRCOMMIT", 8), 0);
    EXPECT_EQ(at<uint32_t>(area, 8), 2u);     // version
    EXPECT_EQ(at<uint32_t>(area, 12), 0u);    // area
    EXPECT_EQ(at<uint8_t>(area, 16), 7u);     // uuid
    EXPECT_EQ(at<uint64_t>(area, 32), 5u);    // sequence
    EXPECT_EQ(at<uint64_t>(area, 40), 40u);   // attempts
    EXPECT_EQ(at<uint64_t>(area, 48), 38u);   // updates
    EXPECT_EQ(at<double>(area, 56), 1024.0);  // gradient scale
    EXPECT_EQ(at<uint64_t>(area, 64), 6u);    // steps since it changed
    EXPECT_EQ(at<uint64_t>(area, 72), 3u);    // place_count
    EXPECT_EQ(at<uint64_t>(area, 80), 32u);   // body_bytes
    EXPECT_EQ(at<uint32_t>(area, 96), 12u);   // numerics_bytes
    EXPECT_EQ(at<uint32_t>(area, 100), 3u);   // payload_bytes
    EXPECT_EQ(std::memcmp(area.data() + 512, R"({"engine":2})", 12), 0);
    EXPECT_EQ(std::memcmp(area.data() + 1536, "a\0b", 3), 0);
    EXPECT_EQ(at<uint8_t>(area, 4096), 0x13u);  // generation map
    EXPECT_EQ(at<uint64_t>(area, 4096 + 8), 11u);
    EXPECT_EQ(at<uint64_t>(area, 4096 + 16), 0u);
    EXPECT_EQ(at<uint64_t>(area, 4096 + 24), 33u);
    EXPECT_EQ(decode(area, first_area), example());
}

TEST(Journal, EveryChangedByteIsSeen) {
    const std::vector<std::byte> area = encoded(example(), first_area);
    for (uint64_t offset = 0; offset < 4096 + 32; offset++) {
        std::vector<std::byte> damaged = area;
        damaged[offset] ^= std::byte{0x40};
        EXPECT_NE(find_fault(damaged, first_area), nullptr) << offset;
    }
    EXPECT_STREQ(find_fault(std::vector<std::byte>(8192), first_area), "there is no record");
}

TEST(Journal, ACommitThatBelongsElsewhereIsNone) {
    const std::vector<std::byte> area = encoded(example(), first_area);
    AreaId other = first_area;
    other.area = 1;
    EXPECT_STREQ(find_fault(area, other), "the record belongs in the other area");
    other = first_area;
    other.uuid[15] = 1;
    EXPECT_STREQ(find_fault(area, other), "the record is another store's");
    other = first_area;
    other.place_count = 4;
    EXPECT_STREQ(find_fault(area, other), "the record counts other places");
}

// A map file of its own, as lay_out makes it, and what stands in its way.
class JournalFile : public testing::Test {
  protected:
    JournalFile() {
        operations_.before_request = [this](const Request& request) -> std::optional<Fault> {
            if (request.direction == offload::Direction::read || write_error_ == 0) return {};
            return Fault{.executed_bytes = 0, .result = -write_error_};
        };
        operations_.sync_data = [this](int) { return -flush_error_; };
        const std::vector<offload::PlaceSpec> places(
            3, {.name = "p", .size_bytes = mib, .copies = offload::Copies::two});
        map_ = make_map({.uuid = {7}, .run_name = "run", .paths = {"/p"}, .predecessor = {}},
                        places, make_placement(places, {1}, mib));
        auto file = DirectFile::open(folder_.path() + "/map", Existence::may_be_made,
                                     CachePolicy::buffered, operations_);
        CHECK(file.ok());
        file_ = std::make_unique<DirectFile>(std::move(*file));
        CHECK(file_->allocate(map_.superblock.map_bytes).ok());
    }

    Journal open() {
        Journal journal(*file_, map_.superblock);
        CHECK(journal.read().ok());
        return journal;
    }

    // A commit of step `attempts` whose first place has that sum.
    static offload::Status commit(Journal& journal, uint64_t attempts) {
        offload::Status status = journal.record({.attempts = attempts}, places_of(attempts));
        return status.ok() ? journal.seal() : status;
    }
    static std::vector<PlaceTruth> places_of(uint64_t attempts) {
        return {{.is_written = true, .copy = 0, .sum = attempts}, {}, {}};
    }

    static std::vector<uint64_t> kept(const Journal& journal) {
        std::vector<uint64_t> attempts;
        if (journal.newest()) attempts.push_back(journal.newest()->record.attempts);
        if (journal.older()) attempts.push_back(journal.older()->record.attempts);
        return attempts;
    }

    TempFolder folder_;
    FileOperations operations_;
    int write_error_ = 0;
    int flush_error_ = 0;
    MapImage map_;
    std::unique_ptr<DirectFile> file_;
};

TEST_F(JournalFile, KeepsTheNewestTwo) {
    Journal journal = open();
    EXPECT_TRUE(kept(journal).empty());
    for (uint64_t step = 1; step <= 5; step++) {
        ASSERT_TRUE(commit(journal, step).ok());
        const std::vector<uint64_t> expected =
            step == 1 ? std::vector<uint64_t>{1} : std::vector<uint64_t>{step, step - 1};
        EXPECT_EQ(kept(journal), expected);
        const Journal again = open();
        EXPECT_EQ(kept(again), expected);
        EXPECT_EQ(again.newest(), journal.newest());
        EXPECT_EQ(again.newest()->sequence, step);
    }
}

// Whoever commits every step allocates nothing for it: the memory of three commits goes round.
TEST_F(JournalFile, TheMemoryOfPastCommitsIsUsedAgain) {
    Journal journal = open();
    std::vector<const PlaceTruth*> places;
    for (uint64_t step = 1; step <= 9; step++) {
        ASSERT_TRUE(commit(journal, step).ok());
        places.push_back(journal.newest()->places.data());
        if (step <= 3) continue;
        EXPECT_EQ(places[step - 1], places[step - 4]) << step;
    }
}

// A torn write of the next commit, at any page boundary and inside a page, leaves the newest.
TEST_F(JournalFile, ATornRecordLeavesTheNewest) {
    Journal journal = open();
    ASSERT_TRUE(commit(journal, 1).ok());
    ASSERT_TRUE(commit(journal, 2).ok());
    const uint64_t area_offset = map_.superblock.commit_area_offset[0];
    std::vector<std::byte> before(map_.superblock.commit_area_bytes);
    ASSERT_TRUE(file_->read_exact(area_offset, before).ok());
    ASSERT_TRUE(journal.record({.attempts = 3}, places_of(3)).ok());
    std::vector<std::byte> after(before.size());
    ASSERT_TRUE(file_->read_exact(area_offset, after).ok());
    ASSERT_FALSE(std::ranges::equal(before, after)) << "area 0 held step 1";
    for (const bool is_head_new : {true, false}) {
        for (uint64_t cut = 512; cut < before.size(); cut += 512) {
            std::vector<std::byte> torn = is_head_new ? before : after;
            std::ranges::copy_n((is_head_new ? after : before).begin(),
                                static_cast<std::ptrdiff_t>(cut), torn.begin());
            ASSERT_TRUE(file_->write_exact(area_offset, torn).ok());
            const std::vector<uint64_t> found = kept(open());
            if (found != std::vector<uint64_t>{2}) {  // or all of one of them was there
                EXPECT_TRUE(found == (std::vector<uint64_t>{2, 1}) ||
                            found == (std::vector<uint64_t>{3, 2}))
                    << cut;
                EXPECT_TRUE(std::ranges::equal(torn, before) || std::ranges::equal(torn, after))
                    << cut;
            }
        }
    }
}

TEST_F(JournalFile, TheSameStepAgainWritesNothing) {
    Journal journal = open();
    ASSERT_TRUE(commit(journal, 1).ok());
    ASSERT_TRUE(commit(journal, 2).ok());
    write_error_ = EIO;
    flush_error_ = EIO;
    EXPECT_TRUE(commit(journal, 2).ok()) << "no call is made";
    EXPECT_EQ(kept(journal), (std::vector<uint64_t>{2, 1}));
    EXPECT_FALSE(commit(journal, 3).ok());
}

TEST_F(JournalFile, AFailedWriteOrFlushIsNoCommit) {
    for (const bool is_write : {true, false}) {
        Journal journal = open();
        const std::vector<uint64_t> before = kept(journal);
        (is_write ? write_error_ : flush_error_) = EIO;
        const offload::Status status = commit(journal, 10);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().text().find("EIO"), std::string::npos) << status.error().text();
        EXPECT_EQ(kept(journal), before);
        write_error_ = flush_error_ = 0;
    }
}

TEST_F(JournalFile, TheNewestCanBeForgotten) {
    Journal journal = open();
    for (const uint64_t step : {1, 2, 3}) ASSERT_TRUE(commit(journal, step).ok());
    ASSERT_TRUE(journal.forget_newest().ok());
    EXPECT_EQ(kept(journal), std::vector<uint64_t>{2});
    EXPECT_EQ(kept(open()), std::vector<uint64_t>{2});
    ASSERT_TRUE(commit(journal, 3).ok());
    EXPECT_EQ(kept(open()), (std::vector<uint64_t>{3, 2}));
}

}  // namespace
}  // namespace headrace::nvme
