// Goal: whenever the machine dies, the store is found at a commit that had been sealed or was being
// sealed, with all its bytes, and goes on from there; no commit whose seal had returned is lost.
// Method: small runs on a CrashDisk; every cut between two of their changes, and of the pending
// ones every subset lost or torn (crash_disk.h), is restored and opened. The bytes that must be
// there follow from place and version.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "nvme/promotion.h"
#include "nvme/run_folder.h"
#include "nvme/store_tools.h"
#include "tests/nvme/crash_fixture.h"

namespace headrace::nvme {
namespace {

using offload::ErrorCode;
using offload::page_bytes;
using offload::PlaceId;
using offload::PlaceSpec;

// Four durable places and some scratch, which commits say nothing of.
std::vector<PlaceSpec> places_with(uint64_t scratch_pages) {
    return {{.name = "hi", .size_bytes = page_bytes, .copies = offload::Copies::two},
            {.name = "opt", .size_bytes = 2 * page_bytes, .copies = offload::Copies::two},
            {.name = "lo", .size_bytes = page_bytes, .copies = offload::Copies::two},
            {.name = "never", .size_bytes = page_bytes, .copies = offload::Copies::two},
            {.name = "scratch", .size_bytes = scratch_pages * page_bytes}};
}
constexpr PlaceId never_place = 3;  // no run writes it
constexpr PlaceId scratch_place = 4;

class Crash : public testing::Test {
  protected:
    Crash() {
        for (const char* name : {"a", "b", "c"}) all_.push_back(run_.disk().make_path(name));
        begin_ = run_.disk().notes().size();
    }
    std::vector<std::string> paths(const std::string& letters) const {
        std::vector<std::string> result;
        for (const char letter : letters) {
            result.push_back(all_.at(static_cast<size_t>(letter - 'a')));
        }
        return result;
    }
    StoreOptions options(const std::string& letters, Opening opening,
                         uint64_t scratch_pages = 1) const {
        return CrashRun::options(paths(letters), places_with(scratch_pages), opening);
    }

    // One step: scratch, then the durable places whose bit is set.
    void step(NvmeStore& store, uint64_t version, unsigned bits) {
        run_.write(store, scratch_place, version);
        for (PlaceId place = 0; place < never_place; place++) {
            if ((bits >> place & 1) != 0) run_.write(store, place, version);
        }
    }

    // A resume finds a commit that it may find; where none need be there, a fresh open works.
    void expect_resumable(const std::string& letters, const CrashRun::Found& found) {
        StoreOptions wanted = options(letters, Opening::resume, 1 + found.image % 3);
        std::ranges::reverse(wanted.paths);
        auto store = open_store(wanted);
        if (!store.ok()) {
            EXPECT_EQ(found.at_least, 0u) << store.error().text();
            EXPECT_EQ(store.error().code, ErrorCode::bad_data) << store.error().text();
            expect_none_and_fresh(letters);
            return;
        }
        const size_t number = run_.expect_commit(**store, found);
        if (testing::Test::HasFailure() || found.image % 7 != 0) return;
        // It goes on: everything is written, a commit is made, and found.
        for (const uint64_t version : {uint64_t{1001}, uint64_t{1002}}) {
            for (PlaceId place = 0; place < never_place; place++) {
                const auto bytes = CrashRun::bytes_of((*store)->places()[place], version);
                ASSERT_TRUE(write_place(**store, place, bytes.span()).ok());
            }
            ASSERT_TRUE(commit_and_wait(**store, {.attempts = version}).ok());
        }
        store->reset();
        store = open_store(options(letters, Opening::resume));
        ASSERT_TRUE(store.ok()) << "after commit " << number << ": " << store.error().text();
        EXPECT_EQ((*store)->recovered()->record.attempts, 1002u);
        CrashRun::expect_versions(**store, {{"hi", 1002}, {"opt", 1002}, {"lo", 1002}});
    }
    void expect_none_and_fresh(const std::string& letters) {
        const auto facts = look_at_store(paths(letters), "run");
        ASSERT_TRUE(facts.ok()) << facts.error().text();
        EXPECT_FALSE(facts->has_value() && (*facts)->newest.has_value());
        auto store = open_store(options(letters, Opening::fresh));
        ASSERT_TRUE(store.ok()) << store.error().text();
        CrashRun::expect_versions(**store, {});
        ASSERT_TRUE(commit_and_wait(**store, {.attempts = 1}).ok());
        store->reset();
        store = open_store(options(letters, Opening::resume));
        EXPECT_TRUE(store.ok()) << store.error().text();
    }

    CrashRun run_;
    std::vector<std::string> all_;
    size_t begin_ = 0;  // of what may be cut
};

// Five steps, each committed; step 3 is skipped, so its commit has the map of the one before.
TEST_F(Crash, ckpt_1_EveryStep) {
    {
        auto store = run_.open_watched(options("a", Opening::fresh));
        const unsigned bits[] = {0, 0b111, 0b111, 0, 0b110, 0b011};
        for (uint64_t version = 1; version <= 5; version++) {
            step(*store, version, bits[version]);
            run_.commit(*store, version);
        }
    }
    run_.for_every_image(begin_,
                         [&](const CrashRun::Found& found) { expect_resumable("a", found); });
    EXPECT_EQ(run_.commits().size(), 5u);
    RecordProperty("images", static_cast<int>(run_.image_count()));
}

// The same on two paths, stopped after step 3 and gone on with other scratch.
TEST_F(Crash, ckpt_1_EveryStepOnTwoPathsAndResumed) {
    {
        auto store = run_.open_watched(options("ab", Opening::fresh, 2));
        for (uint64_t version = 1; version <= 3; version++) {
            step(*store, version, version == 2 ? 0b010 : 0b111);
            run_.commit(*store, version);
        }
    }
    {
        auto store = run_.open_watched(options("ba", Opening::resume, 1));
        step(*store, 4, 0b101);
        run_.commit(*store, 4);
    }
    run_.for_every_image(begin_,
                         [&](const CrashRun::Found& found) { expect_resumable("ab", found); });
    RecordProperty("images", static_cast<int>(run_.image_count()));
}

// Saves: places are written any number of times between two commits.
TEST_F(Crash, ckpt_1_AtSaves) {
    {
        auto store = run_.open_watched(options("ab", Opening::fresh));
        for (uint64_t version = 1; version <= 4; version++) {
            step(*store, version, version % 2 == 0 ? 0b110 : 0b011);
            if (version % 2 == 0) run_.commit(*store, version);
        }
    }
    run_.for_every_image(begin_,
                         [&](const CrashRun::Found& found) { expect_resumable("ab", found); });
    RecordProperty("images", static_cast<int>(run_.image_count()));
}

// Going back a commit: the older one's bytes, or word that it is gone; never others.
TEST_F(Crash, ckpt_1_TheOlderCommitIsWholeOrSaysThatItIsGone) {
    {
        auto store = run_.open_watched(options("ab", Opening::fresh));
        for (uint64_t version = 1; version <= 4; version++) {
            step(*store, version, version == 3 ? 0b010 : 0b111);
            run_.commit(*store, version);
        }
    }
    size_t older_count = 0;
    run_.for_every_image(begin_, [&](const CrashRun::Found& found) {
        const auto facts = look_at_store(paths("ab"), "run");
        ASSERT_TRUE(facts.ok()) << facts.error().text();
        if (!facts->has_value() || !(*facts)->older) return;
        StoreOptions wanted = options("ab", Opening::resume);
        wanted.attempts = (*facts)->older->record.attempts;
        auto store = open_store(wanted);
        if (!store.ok()) {
            const std::string text = store.error().text();
            EXPECT_NE(text.find("the next one had begun"), std::string::npos) << text;
            wanted.attempts.reset();
            store = open_store(wanted);
            ASSERT_TRUE(store.ok()) << store.error().text();
            run_.expect_commit(**store, found);
            return;
        }
        older_count++;
        run_.expect_commit(**store, {.at_least = 1, .at_most = found.at_most});
        EXPECT_EQ((*store)->recovered()->record.attempts, *wanted.attempts);
    });
    EXPECT_GT(older_count, 10u);
}

// A step back that is cut short leaves either commit, whole.
TEST_F(Crash, ckpt_1_AStepBack) {
    {
        auto store = run_.open_watched(options("ab", Opening::fresh));
        for (uint64_t version = 1; version <= 3; version++) {
            step(*store, version, 0b011);
            run_.commit(*store, version);
        }
        store.reset();
        begin_ = run_.disk().notes().size();
        StoreOptions wanted = options("ab", Opening::resume);
        wanted.attempts = 2;
        store = run_.open_watched(wanted);
        step(*store, 7, 0b111);
    }
    run_.for_every_image(begin_, [&](const CrashRun::Found&) {
        expect_resumable("ab", {.at_least = 2, .at_most = 3});
    });
}

// A fresh store over one with commits: the old one is whole, or nothing.
TEST_F(Crash, AFreshStoreOverAnOlderOne) {
    {
        auto store = run_.open_watched(options("ab", Opening::fresh));
        step(*store, 1, 0b111);
        run_.commit(*store, 1);
        store.reset();
        begin_ = run_.disk().notes().size();
        store = run_.open_watched(options("ba", Opening::fresh, 2));
        step(*store, 2, 0b111);
    }
    run_.for_every_image(begin_, [&](const CrashRun::Found& found) {
        expect_resumable("ab", {.at_least = 0, .at_most = 1, .image = found.image});
    });
}

// These tests would see a drive that says it is flushed and is not: with any one file's flushes
// left out, some image loses a commit or shows other bytes.
TEST_F(Crash, DrivesThatLieAreSeen) {
    for (const std::string lying : {"map", "data"}) {
        CrashRun run;
        const std::string path = run.disk().make_path("a");
        const size_t begin = run.disk().notes().size();
        const auto is_lying = [&](int descriptor) {
            const std::string link = fmt::format("/proc/self/fd/{}", descriptor);
            return std::filesystem::read_symlink(link).filename() == lying;
        };
        {
            StoreOptions wanted = CrashRun::options({path}, places_with(1), Opening::fresh);
            wanted.operations = run.disk().operations();
            wanted.operations.sync_data = [&, watched = wanted.operations.sync_data](int file) {
                return is_lying(file) ? 0 : watched(file);
            };
            auto store = open_store(wanted);
            ASSERT_TRUE(store.ok()) << store.error().text();
            for (uint64_t version = 1; version <= 3; version++) {
                for (PlaceId place = 0; place < never_place; place++) {
                    run.write(**store, place, version);
                }
                run.commit(**store, version);
            }
        }
        size_t bad_count = 0;
        run.for_every_image(begin, [&](const CrashRun::Found& found) {
            auto store = open_store(CrashRun::options({path}, places_with(1), Opening::resume));
            if (!store.ok()) {
                bad_count += found.at_least > 0 ? 1 : 0;
                return;
            }
            bool is_good = (*store)->recovered()->record.attempts >= found.at_least;
            for (PlaceId place = 0; place < never_place; place++) {
                const PageBuffer read((*store)->places()[place].size_bytes);
                is_good = is_good && read_place(**store, place, read.span()).ok();
            }
            bad_count += is_good ? 0 : 1;
        });
        EXPECT_GT(bad_count, 10u) << lying;
    }
}

// A move, cut anywhere: the store is found on the old paths or on the new ones, never on both.
class CrashMove : public Crash,
                  public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(CrashMove, OneOfThemIsTheStore) {
    const std::string from = GetParam().first;
    const std::string to = GetParam().second;
    {
        auto store = run_.open_watched(options(from, Opening::fresh, 1));
        step(*store, 1, 0b111);
        run_.commit(*store, 1);
        step(*store, 2, 0b001);
        run_.commit(*store, 2);
    }
    begin_ = run_.disk().notes().size();
    const offload::Status moved = move_store({.from_paths = paths(from),
                                              .to_paths = paths(to),
                                              .run_name = "run",
                                              .engine = IoEngine::threads,
                                              .operations = run_.disk().operations()});
    ASSERT_TRUE(moved.ok()) << moved.error().text();
    run_.disk().mark(1000);  // from here on it is on the new paths
    bool is_moved = false;
    run_.for_every_image(begin_, [&](const CrashRun::Found& found) {
        is_moved = found.at_most == 500;
        const CrashRun::Found wanted{.at_least = 2, .at_most = 2};
        // Whichever is asked first: looks end a promotion, or take away what has no commit.
        std::string there;
        for (const std::string& letters :
             found.image % 2 == 0 ? std::vector{from, to} : std::vector{to, from}) {
            auto store = open_store(options(letters, Opening::resume));
            if (!store.ok()) continue;
            const bool is_same =
                std::set(there.begin(), there.end()) == std::set(letters.begin(), letters.end());
            EXPECT_TRUE(there.empty() || is_same) << there << " and " << letters;
            there = letters;
            run_.expect_commit(**store, wanted);
        }
        for (const std::string& path : paths(to)) {
            EXPECT_FALSE(std::filesystem::exists(run_folder_of(path, "run", Role::successor)));
        }
        if (there.empty() || (is_moved && there != to)) {
            auto store = open_store(options(to, Opening::resume));
            ADD_FAILURE() << "found on: " << there << "; the new paths say: "
                          << (store.ok() ? "there" : store.error().text());
        }
        if (there != from || from == to || found.image % 4 != 0) return;
        // What was cut short can be done again.
        const offload::Status again = move_store({.from_paths = paths(from),
                                                  .to_paths = paths(to),
                                                  .run_name = "run",
                                                  .engine = IoEngine::threads});
        ASSERT_TRUE(again.ok()) << again.error().text();
        auto store = open_store(options(to, Opening::resume));
        ASSERT_TRUE(store.ok()) << store.error().text();
        run_.expect_commit(**store, wanted);
    });
    EXPECT_TRUE(is_moved || testing::Test::HasFailure());
    RecordProperty("images", static_cast<int>(run_.image_count()));
}
INSTANTIATE_TEST_SUITE_P(Paths, CrashMove,
                         testing::Values(std::pair("a", "b"), std::pair("ab", "ab"),
                                         std::pair("ab", "ca"), std::pair("ba", "c")));

}  // namespace
}  // namespace headrace::nvme
