// Goal: every Store keeps the contract of offload/store.h. Method: one suite over the store in
// memory, the faulty one without faults, io_uring and threads, on one path and on three, with
// stripes so small that every place is cut and every queue overflows.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <tuple>

#include "nvme/nvme_store.h"
#include "offload/faulty_store.h"
#include "offload/memory_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::kib;
using offload::PlaceSpec;
using offload::Status;

enum class Kind { memory, faulty, uring, threads };

constexpr uint64_t place_bytes = 272 * kib;  // 4.25 stripes
constexpr offload::PlaceId one_copy = 0;
constexpr offload::PlaceId two_copies = 1;
constexpr offload::PlaceId first_small = 2;
constexpr uint64_t small_count = 30;

class StoreContract : public testing::TestWithParam<std::tuple<Kind, int>> {
  protected:
    void SetUp() override {
        std::vector<PlaceSpec> places = {
            {.name = "scratch", .size_bytes = place_bytes, .copies = offload::Copies::scratch},
            {.name = "hi layers.0/0", .size_bytes = place_bytes, .copies = offload::Copies::two}};
        for (uint64_t i = 0; i < small_count; i++) {
            places.push_back(
                {.name = "small" + std::to_string(i),
                 .size_bytes = (1 + i % 20) * 4 * kib,
                 .copies = i % 2 == 1 ? offload::Copies::two : offload::Copies::scratch});
        }
        open(places);
    }

    void open(const std::vector<PlaceSpec>& places) {
        const auto [kind, path_count] = GetParam();
        if (kind == Kind::memory || kind == Kind::faulty) {
            below_ = std::make_unique<offload::MemoryStore>(places);
            if (kind == Kind::memory) {
                store_ = std::move(below_);
            } else {
                store_ = std::make_unique<offload::FaultyStore>(*below_, offload::Faults{});
            }
            return;
        }
        StoreOptions options;
        for (int path = 0; path < path_count; path++) {
            options.paths.push_back(folder_.make("path" + std::to_string(path)));
        }
        options.run_name = "contract";
        options.places = places;
        options.engine = kind == Kind::uring ? IoEngine::uring : IoEngine::threads;
        options.depth = 3;
        options.block_bytes = 64 * kib;
        options.operations = operations_;
        auto opened = open_store(options);
        ASSERT_TRUE(opened.ok()) << opened.error().text();
        store_ = std::move(*opened);
    }

    bool is_real() const { return std::get<0>(GetParam()) > Kind::faulty; }

    TempFolder folder_;
    FileOperations operations_;
    std::unique_ptr<offload::Store> below_;
    std::unique_ptr<offload::Store> store_;
};

TEST_P(StoreContract, KnowsItsPlaces) {
    ASSERT_EQ(store_->places().size(), 2 + small_count);
    EXPECT_EQ(store_->places()[two_copies].name, "hi layers.0/0");
    EXPECT_EQ(store_->places()[two_copies].copies, offload::Copies::two);
}

TEST_P(StoreContract, AnUnwrittenPlaceReadsAsZeros) {
    PageBuffer buffer(place_bytes);
    for (const offload::PlaceId place : {one_copy, two_copies}) {
        buffer.fill(0xEE);
        ASSERT_TRUE(read_place(*store_, place, buffer.span()).ok());
        EXPECT_TRUE(is_all(buffer.span(), 0));
    }
}

TEST_P(StoreContract, ReadsBackWhatWasWrittenWholeAndPrefix) {
    for (const offload::PlaceId place : {one_copy, two_copies}) {
        PageBuffer written(place_bytes);
        PageBuffer read(place_bytes);
        written.fill_random(place + 1);
        ASSERT_TRUE(write_place(*store_, place, written.span()).ok());
        ASSERT_TRUE(sync_and_wait(*store_).ok());
        ASSERT_TRUE(read_place(*store_, place, read.span()).ok());
        EXPECT_TRUE(written == read);
        for (const uint64_t prefix_bytes : {4 * kib, 64 * kib, 68 * kib, 192 * kib}) {
            read.fill(0xEE);
            ASSERT_TRUE(read_place(*store_, place, read.first(prefix_bytes)).ok());
            EXPECT_TRUE(std::ranges::equal(read.first(prefix_bytes), written.first(prefix_bytes)));
            EXPECT_TRUE(is_all(read.span().subspan(prefix_bytes), 0xEE));
        }
    }
}

TEST_P(StoreContract, APrefixWriteKeepsOneCopyAndClearsTheRestOfTwo) {
    PageBuffer written(place_bytes);
    PageBuffer read(place_bytes);
    written.fill(1);
    for (const offload::PlaceId place : {one_copy, two_copies}) {
        ASSERT_TRUE(write_place(*store_, place, written.span()).ok());
        ASSERT_TRUE(write_place(*store_, place, written.span()).ok());
    }
    written.fill(2);
    for (const offload::PlaceId place : {one_copy, two_copies}) {
        ASSERT_TRUE(write_place(*store_, place, written.first(68 * kib)).ok());
        ASSERT_TRUE(read_place(*store_, place, read.span()).ok());
        EXPECT_TRUE(is_all(read.first(68 * kib), 2));
        EXPECT_TRUE(is_all(read.span().subspan(68 * kib), place == one_copy ? 1 : 0));
    }
}

TEST_P(StoreContract, AFirstPrefixWriteLeavesZerosBehindIt) {
    PageBuffer buffer(place_bytes);
    buffer.fill(7);
    ASSERT_TRUE(write_place(*store_, one_copy, buffer.first(4 * kib)).ok());
    buffer.fill(0xEE);
    ASSERT_TRUE(read_place(*store_, one_copy, buffer.span()).ok());
    EXPECT_TRUE(is_all(buffer.first(4 * kib), 7));
    EXPECT_TRUE(is_all(buffer.span().subspan(4 * kib), 0));
}

TEST_P(StoreContract, TwoCopiesFlipAtEveryWrite) {
    PageBuffer buffer(place_bytes);
    for (uint8_t round = 1; round <= 5; round++) {
        buffer.fill(round);
        ASSERT_TRUE(write_place(*store_, two_copies, buffer.span()).ok());
        buffer.fill(0xEE);
        ASSERT_TRUE(read_place(*store_, two_copies, buffer.span()).ok());
        EXPECT_TRUE(is_all(buffer.span(), round));
    }
}

TEST_P(StoreContract, ManyTransfersAreInFlightTogether) {
    std::deque<PageBuffer> written;
    std::deque<PageBuffer> read;
    Waiter waiter;
    for (uint64_t round = 1; round <= 3; round++) {
        written.clear();
        read.clear();
        for (uint64_t i = 0; i < small_count; i++) {
            const auto place = static_cast<offload::PlaceId>(first_small + i);
            const uint64_t size_bytes = store_->places()[place].size_bytes;
            written.emplace_back(size_bytes).fill_random(100 * round + i);
            read.emplace_back(size_bytes);
            store_->start({Direction::write, place, written.back().span(), waiter.done()});
        }
        waiter.wait_for((2 * round - 1) * small_count);
        for (uint64_t i = 0; i < small_count; i++) {
            const auto place = static_cast<offload::PlaceId>(first_small + i);
            store_->start({Direction::read, place, read[i].span(), waiter.done()});
        }
        waiter.wait_for(2 * round * small_count);
        ASSERT_EQ(waiter.error(), "");
        for (uint64_t i = 0; i < small_count; i++) EXPECT_TRUE(written[i] == read[i]) << i;
    }
}

TEST_P(StoreContract, ReadsAndWritesOfDifferentPlacesMix) {
    PageBuffer big(place_bytes);
    big.fill_random(5);
    ASSERT_TRUE(write_place(*store_, one_copy, big.span()).ok());
    PageBuffer target(place_bytes);
    PageBuffer source(80 * kib);
    source.fill_random(6);
    Waiter waiter;
    for (int round = 0; round < 20; round++) {
        target.fill(0xEE);
        const uint64_t before = waiter.count();
        for (offload::PlaceId i = 0; i < 10; i++) {
            const uint64_t size_bytes = store_->places()[first_small + i].size_bytes;
            store_->start(
                {Direction::write, first_small + i, source.first(size_bytes), waiter.done()});
        }
        store_->start({Direction::read, one_copy, target.span(), waiter.done()});
        waiter.wait_for(before + 11);
        ASSERT_TRUE(target == big);
    }
    EXPECT_EQ(waiter.error(), "");
}

// Of zeros, writes and reads: each `done` starts the next transfer.
TEST_P(StoreContract, DoneMayStartAnotherTransfer) {
    PageBuffer buffer(place_bytes);
    Waiter waiter;
    int left = 60;
    std::function<void(Status)> next = [&](Status status) {
        if (!status.ok() || left == 0) {
            waiter.done()(status);
            return;
        }
        left--;
        const Direction direction = left % 3 == 0 ? Direction::write : Direction::read;
        const offload::PlaceId place = left % 2 == 0 ? one_copy : two_copies;
        store_->start({direction, place, buffer.span(), next});
    };
    next({});
    waiter.wait_for(1);
    EXPECT_EQ(waiter.error(), "");
    EXPECT_EQ(left, 0);
}

// Commits one after the other: of new bytes, of nothing new, and beside scratch, which goes on.
TEST_P(StoreContract, CommitsFollowEachOther) {
    PageBuffer written(place_bytes);
    PageBuffer read(place_bytes);
    for (uint64_t step = 1; step <= 4; step++) {
        const bool is_new = step != 3;
        if (is_new) {
            written.fill_random(step);
            ASSERT_TRUE(write_place(*store_, two_copies, written.span()).ok());
            ASSERT_TRUE(write_place(*store_, one_copy, written.first(4 * kib)).ok());
        }
        const offload::CommitRecord record{.attempts = step, .updates = step / 2};
        const Status status = commit_and_wait(*store_, record);
        ASSERT_TRUE(status.ok()) << status.error().text();
        EXPECT_EQ(store_->newest_commit(), record);
        ASSERT_TRUE(read_place(*store_, two_copies, read.span()).ok());
        EXPECT_TRUE(written == read) << step;
        ASSERT_TRUE(read_place(*store_, one_copy, read.first(4 * kib)).ok());
        EXPECT_TRUE(std::ranges::equal(read.first(4 * kib), written.first(4 * kib))) << step;
    }
}

// A durable place of one copy: written in place, committed, and written over once that is
// withdrawn.
TEST_P(StoreContract, WithdrawReleasesPlacesOfOneCopy) {
    store_.reset();
    below_.reset();
    open({{.name = "hi", .size_bytes = place_bytes, .copies = offload::Copies::one},
          {.name = "scratch", .size_bytes = place_bytes}});
    PageBuffer written(place_bytes);
    PageBuffer read(place_bytes);
    for (uint64_t step = 1; step < 4; step++) {
        ASSERT_TRUE(offload::withdraw_and_wait(*store_).ok());
        EXPECT_FALSE(store_->newest_commit().has_value());
        for (const uint64_t seed : {step, 10 + step}) {
            written.fill_random(seed);
            ASSERT_TRUE(write_place(*store_, 0, written.span()).ok());
            ASSERT_TRUE(read_place(*store_, 0, read.span()).ok());
            EXPECT_EQ(read, written);
        }
        ASSERT_TRUE(commit_and_wait(*store_, {.attempts = step}).ok());
        EXPECT_EQ(store_->newest_commit(), offload::CommitRecord{.attempts = step});
        ASSERT_TRUE(read_place(*store_, 0, read.span()).ok());
        EXPECT_EQ(read, written);
    }
}

TEST_P(StoreContract, DestructionWaitsForWhatIsInFlight) {
    std::deque<PageBuffer> buffers;
    Waiter waiter;
    for (uint64_t i = 0; i < small_count; i++) {
        const auto place = static_cast<offload::PlaceId>(first_small + i);
        buffers.emplace_back(store_->places()[place].size_bytes);
        store_->start({i % 3 == 0 ? Direction::read : Direction::write, place,
                       buffers.back().span(), waiter.done()});
    }
    store_.reset();
    EXPECT_EQ(waiter.count(), small_count);
    EXPECT_EQ(waiter.error(), "");
}

TEST_P(StoreContract, AFailedWriteKeepsTheTruth) {
    std::atomic<bool> is_failing = false;
    PageBuffer written(place_bytes);
    written.fill_random(9);
    if (is_real()) {
        store_.reset();
        operations_.before_request = [&](const Request& request) -> std::optional<Fault> {
            // The third stripe and later: part of the write has happened by then.
            if (!is_failing || request.direction == Direction::read) return {};
            if (request.memory.size() == 64 * kib) return {};
            return Fault{.executed_bytes = 0, .result = -EIO};
        };
        open(
            {{.name = "scratch", .size_bytes = place_bytes, .copies = offload::Copies::scratch},
             {.name = "hi layers.0/0", .size_bytes = place_bytes, .copies = offload::Copies::two}});
    } else {
        below_ = std::make_unique<offload::MemoryStore>(store_->places());
        store_ =
            std::make_unique<offload::FaultyStore>(*below_, offload::Faults{.failing_transfer = 1});
    }
    ASSERT_TRUE(write_place(*store_, two_copies, written.span()).ok());
    is_failing = true;
    PageBuffer other(place_bytes);
    const Status failed = write_place(*store_, two_copies, other.span());
    is_failing = false;
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.error().text().find("hi layers.0/0"), std::string::npos)
        << failed.error().text();
    ASSERT_TRUE(read_place(*store_, two_copies, other.span()).ok());
    EXPECT_TRUE(written == other);
    ASSERT_TRUE(write_place(*store_, two_copies, other.span()).ok());  // and it goes on
    store_.reset();
}

std::string name_of(const testing::TestParamInfo<std::tuple<Kind, int>>& info) {
    constexpr const char* names[] = {"Memory", "Faulty", "Uring", "Threads"};
    return names[static_cast<int>(std::get<0>(info.param))] +
           std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract,
                         testing::Values(std::tuple(Kind::memory, 1), std::tuple(Kind::faulty, 1),
                                         std::tuple(Kind::uring, 1), std::tuple(Kind::uring, 3),
                                         std::tuple(Kind::threads, 1),
                                         std::tuple(Kind::threads, 3)),
                         name_of);

}  // namespace
}  // namespace headrace::nvme
