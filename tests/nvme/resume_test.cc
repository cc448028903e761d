// Goal: what was committed is found again, bit for bit, after any end of the process, and nothing
// else is taken for it. Method: stores on real files are written, committed, closed and opened
// again with other scratch and other path orders; records and bytes are damaged in between.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "nvme/nvme_store.h"
#include "nvme/store_facts.h"
#include "tests/nvme/fixture.h"
#include "tests/nvme/lying_cache.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::ErrorCode;
using offload::kib;
using offload::mib;
using offload::PlaceSpec;
using offload::Status;

constexpr uint64_t place_bytes = 192 * kib;  // three stripes
constexpr uint64_t durable_count = 6;

class Resume : public testing::TestWithParam<IoEngine> {
  protected:
    Resume() {
        if (GetParam() == IoEngine::uring && !probe_io_uring().ok()) {
            engine_ = IoEngine::threads;
        }
        for (const char* name : {"a", "b", "c"}) paths_.push_back(folder_.make(name));
        for (uint64_t i = 0; i < durable_count; i++) {
            durable_.push_back({.name = "hi layers." + std::to_string(i) + "/0",
                                .size_bytes = place_bytes,
                                .copies = offload::Copies::two});
        }
    }

    StoreOptions options(Opening opening, uint64_t scratch_count = 2) const {
        StoreOptions result{.paths = paths_, .run_name = "run", .places = durable_};
        for (uint64_t i = 0; i < scratch_count; i++) {
            result.places.insert(result.places.begin(), {.name = "act " + std::to_string(i),
                                                         .size_bytes = (1 + i) * 64 * kib});
        }
        result.weights = {2, 1, 1};
        result.engine = engine_;
        result.block_bytes = 64 * kib;
        result.opening = opening;
        return result;
    }

    std::unique_ptr<NvmeStore> open(const StoreOptions& wanted) {
        auto store = open_store(wanted);
        CHECK_TEXT(store.ok(), store.ok() ? "" : store.error().text());
        return std::move(*store);
    }
    static std::string refusal(const StoreOptions& wanted) {
        auto store = open_store(wanted);
        return store.ok() ? "" : store.error().text();
    }

    // Writes step `step` to the places whose bit is set; commits it.
    static void write(NvmeStore& store, uint64_t step, unsigned bits) {
        for (offload::PlaceId place = 0; place < store.places().size(); place++) {
            PageBuffer buffer(store.places()[place].size_bytes);
            buffer.fill_random(1000 * step + place);
            if (is_durable(store.places()[place].copies)) {
                const bool is_wanted = (bits & 1) != 0;
                bits >>= 1;
                buffer.fill_random(step);
                if (!is_wanted) continue;
            }
            const Status status = write_place(store, place, buffer.span());
            CHECK_TEXT(status.ok(), status.ok() ? "" : status.error().text());
        }
    }
    static Status commit(NvmeStore& store, uint64_t step) {
        return commit_and_wait(store, {.attempts = step,
                                       .updates = step - 1,
                                       .gradient_scale = 0.5,
                                       .scale_steps = 3,
                                       .numerics = "n",
                                       .payload = "p"});
    }

    // The step whose bytes each durable place holds; 0 for zeros; 99 for anything else.
    static std::vector<uint64_t> steps_of(NvmeStore& store) {
        std::vector<uint64_t> steps;
        for (offload::PlaceId place = 0; place < store.places().size(); place++) {
            if (!is_durable(store.places()[place].copies)) continue;
            PageBuffer read(place_bytes);
            const Status status = read_place(store, place, read.span());
            CHECK_TEXT(status.ok(), status.ok() ? "" : status.error().text());
            uint64_t found = is_all(read.span(), 0) ? 0 : 99;
            for (uint64_t step = 1; step < 8 && found == 99; step++) {
                PageBuffer wanted(place_bytes);
                wanted.fill_random(step);
                if (wanted == read) found = step;
            }
            steps.push_back(found);
        }
        return steps;
    }

    // Flips a bit of every page of the data files that holds the given step's bytes.
    uint64_t damage(uint64_t step) {
        PageBuffer wanted(place_bytes);
        wanted.fill_random(step);
        const std::string_view first_bytes(reinterpret_cast<const char*>(wanted.span().data()), 64);
        uint64_t count = 0;
        for (const std::string& path : paths_) {
            const std::string name = path + "/headrace-run/data";
            std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
            std::string page(4096, '\0');
            for (std::streamoff offset = 0; file.seekg(offset).read(page.data(), 4096);
                 offset += 4096) {
                if (!page.starts_with(first_bytes)) continue;
                page[4000] ^= 1;
                file.seekp(offset).write(page.data(), 4096);
                count++;
            }
        }
        return count;
    }

    TempFolder folder_;
    std::vector<std::string> paths_;
    std::vector<PlaceSpec> durable_;
    IoEngine engine_ = GetParam();
};

TEST_P(Resume, ckpt_1_a_commit_is_found_again) {
    {
        auto store = open(options(Opening::fresh));
        EXPECT_FALSE(store->recovered().has_value());
        write(*store, 1, 0b111111);
        ASSERT_TRUE(commit(*store, 1).ok());
        write(*store, 2, 0b001011);
        ASSERT_TRUE(commit(*store, 2).ok());
    }
    auto store = open(options(Opening::resume));
    ASSERT_TRUE(store->recovered().has_value());
    EXPECT_EQ(store->recovered()->record, (offload::CommitRecord{.attempts = 2,
                                                                 .updates = 1,
                                                                 .gradient_scale = 0.5,
                                                                 .scale_steps = 3,
                                                                 .numerics = "n",
                                                                 .payload = "p"}));
    EXPECT_EQ(store->recovered()->other_attempts, std::optional<uint64_t>(1));
    EXPECT_EQ(steps_of(*store), (std::vector<uint64_t>{2, 2, 1, 2, 1, 1}));
    // And it goes on: any number of times.
    for (uint64_t step = 3; step <= 6; step++) {
        write(*store, step, 0b110000);
        ASSERT_TRUE(commit(*store, step).ok());
        store.reset();
        store = open(options(Opening::resume, step));
        EXPECT_EQ(store->recovered()->record.attempts, step);
        EXPECT_EQ(steps_of(*store), (std::vector<uint64_t>{2, 2, 1, 2, step, step}));
    }
}

// Writes that no commit followed are as if they had not been; so is a record without its seal if
// it did not reach the drive, and here it did.
TEST_P(Resume, WhatWasNotCommittedIsGone) {
    {
        auto store = open(options(Opening::fresh));
        write(*store, 1, 0b000111);
        ASSERT_TRUE(commit(*store, 1).ok());
        write(*store, 2, 0b111100);
        write(*store, 3, 0b000001);
        write(*store, 4, 0b000001);  // a second time between two commits
    }
    auto store = open(options(Opening::resume));
    EXPECT_EQ(steps_of(*store), (std::vector<uint64_t>{1, 1, 1, 0, 0, 0}));
    EXPECT_FALSE(store->recovered()->other_attempts.has_value());
}

TEST_P(Resume, TheStoreOfAKilledRunResumesAtItsCommit) {
    EXPECT_EQ(run_in_child([&] {
                  auto store = open(options(Opening::fresh));
                  write(*store, 1, 0b111111);
                  if (!commit(*store, 1).ok()) return 1;
                  write(*store, 2, 0b010101);
                  kill(getpid(), SIGKILL);
                  return 2;
              }),
              1000 + SIGKILL);
    auto store = open(options(Opening::resume));
    EXPECT_EQ(steps_of(*store), (std::vector<uint64_t>{1, 1, 1, 1, 1, 1}));
}

// An owner that has ended counts as ended before its parent asks about it: what it left behind
// (here a child that shares the locks for a moment) is waited for.
TEST_P(Resume, AZombieIsNoOwner) {
    const pid_t owner = fork();
    CHECK_GE(owner, 0);
    if (owner == 0) {
        auto store = open(options(Opening::fresh));
        write(*store, 1, 0b111111);
        if (!commit(*store, 1).ok()) _exit(1);
        if (fork() == 0) usleep(300'000);
        _exit(0);
    }
    siginfo_t ended{};
    CHECK_EQ(waitid(P_PID, static_cast<id_t>(owner), &ended, WEXITED | WNOWAIT), 0);
    {
        auto store = open(options(Opening::resume));
        EXPECT_EQ(steps_of(*store), std::vector<uint64_t>(durable_count, 1));
    }
    int status = 0;
    CHECK_EQ(waitpid(owner, &status, 0), owner);
    EXPECT_EQ(status, 0);
}

TEST_P(Resume, AnyPathOrderWillDoAndEachMissingOrExtraPathIsNamed) {
    {
        auto store = open(options(Opening::fresh));
        write(*store, 1, 0b111111);
        ASSERT_TRUE(commit(*store, 1).ok());
    }
    StoreOptions wanted = options(Opening::resume);
    std::ranges::sort(wanted.paths);
    do {
        auto store = open(wanted);
        EXPECT_EQ(steps_of(*store), std::vector<uint64_t>(durable_count, 1));
    } while (std::ranges::next_permutation(wanted.paths).found);

    const std::string missing = std::filesystem::canonical(wanted.paths.back()).string();
    wanted.paths.pop_back();
    EXPECT_NE(refusal(wanted).find("its part in " + missing), std::string::npos) << refusal(wanted);
    wanted.paths = options(Opening::resume).paths;
    wanted.paths.push_back(folder_.make("extra"));
    EXPECT_NE(refusal(wanted).find("nothing of it in " + wanted.paths.back()), std::string::npos)
        << refusal(wanted);
    EXPECT_TRUE(std::filesystem::is_empty(wanted.paths.back()));
    // A folder of another store of the same name among them.
    wanted.paths[2] = wanted.paths.back();
    wanted.paths.pop_back();
    StoreOptions other = options(Opening::fresh);
    other.paths = {wanted.paths[2]};
    other.weights = {1};
    open(other);
    EXPECT_NE(refusal(wanted).find("different stores"), std::string::npos) << refusal(wanted);
}

TEST_P(Resume, OtherPlacesAreRefusedAndNamed) {
    {
        auto store = open(options(Opening::fresh));
        write(*store, 1, 0b111111);
        ASSERT_TRUE(commit(*store, 1).ok());
    }
    const StoreOptions good = options(Opening::resume);
    StoreOptions wanted = good;
    wanted.places.back().size_bytes += 4096;
    EXPECT_EQ(open_store(wanted).error().code, ErrorCode::bad_data);
    EXPECT_NE(refusal(wanted).find("'hi layers.5/0' of 200704 bytes"), std::string::npos)
        << refusal(wanted);
    wanted = good;
    wanted.places.back().name = "other";
    EXPECT_NE(refusal(wanted).find("'other'"), std::string::npos);
    wanted = good;
    wanted.places.pop_back();
    EXPECT_NE(refusal(wanted).find("5 wanted in all, 6 there"), std::string::npos);
    EXPECT_EQ(refusal(good), "") << "a refusal costs nothing";
}

// Scratch may grow and shrink; weights and stripe are the store's own.
TEST_P(Resume, ScratchIsLaidAnewBehindTheDurableBytes) {
    {
        auto store = open(options(Opening::fresh, 1));
        write(*store, 1, 0b111111);
        ASSERT_TRUE(commit(*store, 1).ok());
    }
    for (const uint64_t scratch_count : {5, 0, 3}) {
        StoreOptions wanted = options(Opening::resume, scratch_count);
        wanted.weights = {1, 1, 1};
        wanted.block_bytes = 1 * mib;
        auto store = open(wanted);
        write(*store, 7, 0);  // scratch only
        EXPECT_EQ(steps_of(*store), std::vector<uint64_t>(durable_count, 1));
        uint64_t data_bytes = 0;
        for (const std::string& path : paths_) {
            data_bytes += std::filesystem::file_size(path + "/headrace-run/data");
        }
        uint64_t expected_bytes = 0;
        for (const PlaceSpec& place : wanted.places) {
            expected_bytes += place.size_bytes * count_of(place.copies);
        }
        EXPECT_EQ(data_bytes, expected_bytes);
    }
}

TEST_P(Resume, TheStepBeforeIsThereUntilTheNextBegins) {
    {
        auto store = open(options(Opening::fresh));
        for (uint64_t step = 1; step <= 3; step++) {
            write(*store, step, 0b000011u << (step - 1));
            ASSERT_TRUE(commit(*store, step).ok());
        }
    }
    StoreOptions wanted = options(Opening::resume);
    wanted.attempts = 7;
    EXPECT_NE(refusal(wanted).find("2 and 3"), std::string::npos) << refusal(wanted);
    wanted.attempts = 3;
    EXPECT_EQ(steps_of(*open(wanted)), (std::vector<uint64_t>{1, 2, 3, 3, 0, 0}));
    wanted.attempts = 2;
    {
        auto store = open(wanted);
        EXPECT_EQ(store->recovered()->record.attempts, 2u);
        EXPECT_EQ(steps_of(*store), (std::vector<uint64_t>{1, 2, 2, 0, 0, 0}));
    }
    wanted.attempts = {};
    auto store = open(wanted);
    EXPECT_EQ(store->recovered()->record.attempts, 2u) << "step 3 is gone for good";
    write(*store, 4, 0b001000);
    ASSERT_TRUE(commit(*store, 3).ok());
    store.reset();
    EXPECT_EQ(steps_of(*open(wanted)), (std::vector<uint64_t>{1, 2, 2, 4, 0, 0}));
}

TEST_P(Resume, TheStepBeforeIsRefusedOnceTheNextHasBegun) {
    {
        auto store = open(options(Opening::fresh));
        for (uint64_t step = 1; step <= 2; step++) {
            write(*store, step, 0b000111);
            ASSERT_TRUE(commit(*store, step).ok());
        }
        write(*store, 3, 0b000010);
    }
    StoreOptions wanted = options(Opening::resume);
    wanted.attempts = 1;
    auto store = open_store(wanted);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::bad_data);
    EXPECT_NE(store.error().text().find("only step 2 is left"), std::string::npos)
        << store.error().text();
    wanted.attempts = 2;
    EXPECT_EQ(steps_of(*open(wanted)), (std::vector<uint64_t>{2, 2, 2, 0, 0, 0}));
}

TEST_P(Resume, DamageIsFoundAtTheFirstReadAndThePlaceIsNamed) {
    {
        auto store = open(options(Opening::fresh));
        write(*store, 1, 0b111111);
        ASSERT_TRUE(commit(*store, 1).ok());
        write(*store, 2, 0b000100);
        ASSERT_TRUE(commit(*store, 2).ok());
    }
    ASSERT_EQ(damage(2), 1u);
    auto store = open(options(Opening::resume, 0));
    PageBuffer buffer(place_bytes);
    for (offload::PlaceId place = 0; place < durable_count; place++) {
        for (const bool is_again : {false, true}) {
            const Status status = read_place(*store, place, buffer.span());
            EXPECT_EQ(status.ok(), place != 2) << is_again;
            if (status.ok()) continue;
            EXPECT_EQ(status.error().code, ErrorCode::bad_data);
            EXPECT_NE(status.error().text().find("hi layers.2/0"), std::string::npos);
        }
    }
    buffer.fill_random(3);
    EXPECT_TRUE(write_place(*store, 2, buffer.span()).ok());
    EXPECT_TRUE(read_place(*store, 2, buffer.span()).ok()) << "new bytes are good";
}

TEST_P(Resume, AFailedMoveEndsTheCommitsAndKeepsTheLast) {
    for (const std::string move : {"sync", "record", "seal"}) {
        std::atomic<bool> is_failing = false;
        StoreOptions wanted = options(Opening::fresh);
        std::atomic<int> flush_count = 0;
        wanted.operations.sync_data = [&](int descriptor) {
            if (is_failing) {
                const int count = ++flush_count;  // three data files, then the map
                if (move == "sync" && count == 2) return -EIO;
                if (move == "seal" && count == 4) return -EIO;
            }
            return fdatasync(descriptor) < 0 ? -errno : 0;
        };
        wanted.operations.before_request = [&](const Request& request) -> std::optional<Fault> {
            const bool is_record = request.direction == Direction::write && flush_count == 3;
            if (move != "record" || !is_record) return {};
            return Fault{.executed_bytes = 4096, .result = -EIO};  // the record without its body
        };
        {
            auto store = open(wanted);
            write(*store, 1, 0b111111);
            ASSERT_TRUE(commit(*store, 1).ok());
            write(*store, 2, 0b111000);
            is_failing = true;
            const Status failed = commit(*store, 2);
            ASSERT_FALSE(failed.ok()) << move;
            EXPECT_NE(failed.error().text().find("EIO"), std::string::npos);
            is_failing = false;
            flush_count = 0;
            const Status again = commit(*store, 2);
            ASSERT_FALSE(again.ok()) << move;
            EXPECT_NE(again.error().text().find("an earlier one failed"), std::string::npos);
            PageBuffer buffer(place_bytes);
            EXPECT_FALSE(write_place(*store, 2, buffer.span()).ok()) << move;
        }
        auto store = open(options(Opening::resume));
        const uint64_t step = store->recovered()->record.attempts;
        EXPECT_TRUE(step == 1 || (move == "seal" && step == 2)) << move;
        EXPECT_EQ(steps_of(*store)[5], step) << move;
        store.reset();
        ASSERT_TRUE(remove_store(paths_, "run").ok());
    }
}

// The zeros over the record are in the page cache and not on the drive: it is a resume point still.
TEST_P(Resume, ALookFindsTheCommitWhoseWithdrawalFailed) {
    bool is_failing = false;
    LyingCache cache([&](const std::string&, const std::string&) { return is_failing; });
    StoreOptions wanted = options(Opening::fresh);
    wanted.operations = cache.operations();
    {
        auto store = open(wanted);
        write(*store, 1, 0b111111);
        ASSERT_TRUE(commit(*store, 1).ok());
        is_failing = true;
        EXPECT_FALSE(withdraw_and_wait(*store).ok());
    }
    ASSERT_TRUE(cache.has_failed());
    const auto facts = look_at_store(paths_, "run", cache.operations());
    ASSERT_TRUE(facts.ok()) << facts.error().text();
    ASSERT_TRUE(facts->has_value());
    ASSERT_TRUE((*facts)->newest.has_value());
    EXPECT_EQ((*facts)->newest->record.attempts, 1u);
    wanted = options(Opening::resume);
    wanted.expected = (*facts)->newest_id();
    EXPECT_EQ(steps_of(*open(wanted)), std::vector<uint64_t>(durable_count, 1));
}

TEST_P(Resume, AnOpenInsistsOnTheCommitThatWasLookedAt) {
    const auto look = [&] {
        const auto facts = look_at_store(paths_, "run");
        CHECK(facts.ok() && facts->has_value());
        return (*facts)->newest_id();
    };
    StoreOptions wanted = options(Opening::resume);
    {
        auto store = open(options(Opening::fresh));
        write(*store, 1, 0b111111);
        ASSERT_TRUE(commit(*store, 1).ok());
    }
    wanted.expected = look();
    EXPECT_EQ(refusal(wanted), "");
    {
        auto store = open(options(Opening::resume));
        write(*store, 2, 0b111111);
        ASSERT_TRUE(commit(*store, 2).ok());
    }
    const std::string refused = refusal(wanted);
    for (const char* part : {"commit number 1 was read", "number 2, of step 2", "start again"}) {
        EXPECT_NE(refused.find(part), std::string::npos) << refused;
    }
    EXPECT_EQ(steps_of(*open(options(Opening::resume))), std::vector<uint64_t>(durable_count, 2))
        << "a refusal steps back to nothing and changes nothing";
    wanted.expected = look();
    EXPECT_EQ(refusal(wanted), "");
    // Another run's, as far along.
    {
        auto store = open(options(Opening::fresh));
        EXPECT_NE(refusal(wanted).find("in use"), std::string::npos);
        for (uint64_t step = 1; step <= 2; step++) ASSERT_TRUE(commit(*store, step).ok());
    }
    EXPECT_NE(refusal(wanted).find("of another store of the same name"), std::string::npos)
        << refusal(wanted);
}

TEST_P(Resume, WhatIsNoStoreWithACommitIsRefused) {
    const StoreOptions wanted = options(Opening::resume);
    EXPECT_NE(refusal(wanted).find("there is nothing of it in"), std::string::npos);
    open(options(Opening::fresh));
    EXPECT_NE(refusal(wanted).find("no commit"), std::string::npos) << refusal(wanted);
    ASSERT_EQ(truncate((paths_[1] + "/headrace-run/data").c_str(), 4096), 0);
    EXPECT_NE(refusal(wanted).find("its data has 4096 bytes of"), std::string::npos);
    ASSERT_EQ(truncate((paths_[1] + "/headrace-run/map").c_str(), 65536), 0);
    EXPECT_NE(refusal(wanted).find("its map has 65536 bytes"), std::string::npos);
    EXPECT_EQ(refusal(options(Opening::fresh)), "") << "and a fresh one replaces it";
}

INSTANTIATE_TEST_SUITE_P(Engines, Resume, testing::Values(IoEngine::uring, IoEngine::threads),
                         [](const auto& row) {
                             return row.param == IoEngine::uring ? "Uring" : "Threads";
                         });

}  // namespace
}  // namespace headrace::nvme
