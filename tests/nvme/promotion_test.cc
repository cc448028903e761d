// Goal: a store that moves, or is laid out anew, is at every moment either the old one or the new
// one, whole. Method: the process is ended before every single change of a promotion, and what the
// next look and open find is compared; then moves between overlapping paths, damage, a full drive,
// a seal that fails, a store that changes under a look, and a request that never ends.
#include "nvme/promotion.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <set>

#include "nvme/drive_cache.h"
#include "nvme/nvme_store.h"
#include "nvme/store_facts.h"
#include "nvme/store_tools.h"
#include "tests/nvme/fixture.h"
#include "tests/nvme/image_mount.h"
#include "tests/nvme/lying_cache.h"

namespace headrace::nvme {
namespace {

using offload::ErrorCode;
using offload::kib;
using offload::page_bytes;
using offload::PlaceSpec;
using offload::Status;

class PromotionTest : public testing::Test {
  protected:
    PromotionTest() {
        for (const char* name : {"a", "b", "c", "d"}) all_.push_back(folder_.make(name));
    }
    std::vector<std::string> paths(const std::string& letters) const {
        std::vector<std::string> result;
        for (const char letter : letters) result.push_back(all_[letter - 'a']);
        return result;
    }

    // The old layout has places of 64 KiB, the new one of 128 KiB.
    static std::vector<PlaceSpec> places_of(Opening opening) {
        std::vector<PlaceSpec> places;
        const uint64_t size_bytes = opening == Opening::successor ? 128 * kib : 64 * kib;
        for (int i = 0; i < 4; i++) {
            places.push_back({.name = "place " + std::to_string(i),
                              .size_bytes = size_bytes,
                              .copies = offload::Copies::two});
        }
        return places;
    }
    std::unique_ptr<NvmeStore> open(const std::string& letters, Opening opening,
                                    std::vector<PlaceSpec> places) {
        auto store = open_store({.paths = paths(letters),
                                 .run_name = "run",
                                 .places = std::move(places),
                                 .engine = IoEngine::threads,
                                 .depth = 2,
                                 .block_bytes = 16 * kib,
                                 .opening = opening});
        CHECK_TEXT(store.ok(), store.ok() ? "" : store.error().text());
        return std::move(*store);
    }
    // A store whose bytes are those of `step`; committed or not.
    void make(const std::string& letters, Opening opening, uint64_t step, bool is_committed) {
        auto store = open(letters, opening, places_of(opening));
        for (offload::PlaceId place = 0; place < 3; place++) {  // the fourth stays unwritten
            PageBuffer buffer(store->places()[place].size_bytes);
            buffer.fill_random(step);
            CHECK(write_place(*store, place, buffer.span()).ok());
        }
        if (is_committed) CHECK(commit_and_wait(*store, {.attempts = step}).ok());
    }
    std::string look(const std::string& letters) {
        auto facts = look_at_store(paths(letters), "run");
        if (!facts.ok()) return facts.error().text();
        if (!facts->has_value()) return "nothing";
        return "step " + std::to_string((*facts)->newest->record.attempts);
    }
    // That the store there is whole, and of that step.
    void expect_step(const std::string& letters, uint64_t step) {
        auto facts = look_at_store(paths(letters), "run");
        ASSERT_TRUE(facts.ok()) << facts.error().text();
        ASSERT_TRUE(facts->has_value());
        ASSERT_TRUE((*facts)->newest.has_value());
        auto store = open(letters, Opening::resume, (*facts)->places);
        EXPECT_EQ(store->recovered()->record.attempts, step);
        for (offload::PlaceId place = 0; place < 4; place++) {
            PageBuffer wanted(store->places()[place].size_bytes);
            PageBuffer read(store->places()[place].size_bytes);
            wanted.fill_random(step);
            if (place == 3) wanted.fill(0);
            ASSERT_TRUE(read_place(*store, place, read.span()).ok());
            EXPECT_TRUE(wanted == read) << place;
        }
    }
    Status verify(const std::string& letters, Verify wanted) {
        wanted.paths = paths(letters);
        wanted.run_name = "run";
        const auto verified = verify_store(wanted);
        return verified.ok() ? Status{} : Status(verified.error());
    }
    // Folders of the run, of either kind, on all paths.
    std::string folders() const {
        std::string found;
        for (size_t path = 0; path < all_.size(); path++) {
            for (const Role role : {Role::truth, Role::successor}) {
                if (!std::filesystem::exists(run_folder_of(all_[path], "run", role))) continue;
                found += static_cast<char>('a' + path);
                if (role == Role::successor) found += '+';
            }
        }
        return found;
    }

    TempFolder folder_;
    std::vector<std::string> all_;
};

// From one set of paths to another; ended before its n-th change, for every n.
TEST_F(PromotionTest, ACrashBeforeEveryStepLeavesTheSuccessor) {
    struct Row {
        std::string from;
        std::string to;
    };
    for (const Row& row : {Row{"ab", "ab"}, Row{"abc", "cb"}, Row{"ab", "cd"}, Row{"a", "bca"}}) {
        int exit_code = 7;
        int step_count = 0;
        Uuid uuid = {};
        while (exit_code == 7) {
            step_count++;
            make(row.from, Opening::fresh, 1, true);
            {
                auto source = open(row.from, Opening::resume, places_of(Opening::fresh));
                auto facts = look_at_store(paths(row.from), "run");
                ASSERT_TRUE(facts.ok());
                EXPECT_TRUE((*facts)->is_live);
                StoreOptions options{.paths = paths(row.to), .run_name = "run"};
                options.places = places_of(Opening::successor);
                options.engine = IoEngine::threads;
                options.opening = Opening::successor;
                options.predecessor = {.uuid = (*facts)->uuid, .paths = (*facts)->known_paths};
                auto target = open_store(options);
                ASSERT_TRUE(target.ok()) << target.error().text();
                for (offload::PlaceId place = 0; place < 3; place++) {
                    PageBuffer buffer(128 * kib);
                    buffer.fill_random(2);
                    ASSERT_TRUE(write_place(**target, place, buffer.span()).ok());
                }
                ASSERT_TRUE(commit_and_wait(**target, {.attempts = 2}).ok());
                uuid = (*target)->uuid();
            }
            exit_code = run_in_child([&] {
                int left = step_count;
                const auto before_change = [&left] {
                    if (--left == 0) _exit(7);
                };
                FileOperations operations;
                operations.remove_folder = [&](const std::string& folder) {
                    before_change();
                    return remove_folder({}, folder);
                };
                operations.rename = [&](const std::string& source, const std::string& target) {
                    before_change();
                    return rename_entry({}, source, target);
                };
                const Status status = promote_store(paths(row.to), "run", uuid, operations);
                return status.ok() ? 0 : 1;
            });
            ASSERT_TRUE(exit_code == 7 || exit_code == 0) << exit_code;
            // The old paths alone: the old store is not taken for the truth.
            const std::string old = look(row.from);
            EXPECT_NE(old, "step 1") << row.from << row.to << step_count;
            expect_step(row.to, 2);
            std::string sorted = row.to;
            std::ranges::sort(sorted);
            EXPECT_EQ(folders(), sorted) << row.from << row.to << step_count;
            ASSERT_TRUE(remove_store(all_, "run").ok());
        }
        EXPECT_EQ(step_count, static_cast<int>(row.from.size() + row.to.size()) + 1);
    }
}

TEST_F(PromotionTest, ASuccessorWithoutACommitIsTakenAway) {
    make("ab", Opening::fresh, 1, true);
    make("bac", Opening::successor, 2, false);
    EXPECT_EQ(folders(), "aa+bb+c+");
    EXPECT_NE(promote_store(paths("bac"), "run", {}).error().text().find("no commit"),
              std::string::npos);
    EXPECT_NE(look("abc").find("and not on " + all_[2]), std::string::npos) << look("abc");
    expect_step("ab", 1);
    EXPECT_EQ(folders(), "ab");
}

// Another process may look between the closing of the stores and the promotion, and so end it.
TEST_F(PromotionTest, OneThatALookEndedHasSucceeded) {
    make("ab", Opening::fresh, 1, true);
    Uuid uuid = {};
    {
        auto successor = open("ab", Opening::successor, places_of(Opening::successor));
        ASSERT_TRUE(commit_and_wait(*successor, {.attempts = 2}).ok());
        uuid = successor->uuid();
    }
    EXPECT_EQ(look("ab"), "step 2");
    EXPECT_EQ(folders(), "ab");
    EXPECT_TRUE(promote_store(paths("ab"), "run", uuid).ok());
    uuid[0] ^= 1;
    EXPECT_NE(promote_store(paths("ab"), "run", uuid).error().text().find("there is none"),
              std::string::npos);
}

TEST_F(PromotionTest, ASuccessorThatIsBeingFilledIsLeftAlone) {
    make("ab", Opening::fresh, 1, true);
    auto successor = open("ab", Opening::successor, places_of(Opening::successor));
    EXPECT_EQ(look("ab"), "step 1");
    EXPECT_EQ(folders(), "aa+bb+");
    EXPECT_NE(promote_store(paths("ab"), "run", {}).error().text().find("in use"),
              std::string::npos);
}

TEST_F(PromotionTest, TheOldPathsSayWhereTheSuccessorIs) {
    make("ab", Opening::fresh, 1, true);
    auto facts = look_at_store(paths("ab"), "run");
    ASSERT_TRUE(facts.ok());
    StoreOptions options{.paths = paths("cd"), .run_name = "run"};
    options.places = places_of(Opening::successor);
    options.opening = Opening::successor;
    options.predecessor = {.uuid = (*facts)->uuid, .paths = (*facts)->known_paths};
    {
        auto target = open_store(options);
        ASSERT_TRUE(target.ok()) << target.error().text();
        EXPECT_EQ(look("ab"), "step 1") << "it has no commit yet";
        ASSERT_TRUE(commit_and_wait(**target, {.attempts = 2}).ok());
    }
    EXPECT_NE(look("ab").find("was moved"), std::string::npos) << look("ab");
    EXPECT_NE(look("ab").find("/c, "), std::string::npos) << look("ab");
    EXPECT_NE(look("d").find("its first path"), std::string::npos) << look("d");
    EXPECT_EQ(look("dc"), "step 2");
    EXPECT_EQ(look("ab"), "nothing");
}

TEST_F(PromotionTest, MovesAndVerifies) {
    make("ab", Opening::fresh, 1, true);
    std::string from = "ab";
    for (const std::string to : {"cab", "d", "db", "bd"}) {
        uint64_t done_bytes = 0;
        uint64_t total_bytes = 0;
        const Status status = move_store({.from_paths = paths(from),
                                          .to_paths = paths(to),
                                          .run_name = "run",
                                          .progress = [&](uint64_t done, uint64_t total) {
                                              done_bytes = done;
                                              total_bytes = total;
                                          }});
        ASSERT_TRUE(status.ok()) << status.error().text();
        EXPECT_EQ(done_bytes, 3 * 64 * kib);
        EXPECT_EQ(total_bytes, done_bytes);
        std::string sorted = to;
        std::ranges::sort(sorted);
        EXPECT_EQ(folders(), sorted);
        expect_step(to, 1);
        from = to;
    }
    uint64_t reported = 0;
    auto verified = verify_store({.paths = paths(from),
                                  .run_name = "run",
                                  .report = [&](const std::string&, const Status& status) {
                                      reported += status.ok() ? 1 : 100;
                                  }});
    ASSERT_TRUE(verified.ok()) << verified.error().text();
    EXPECT_EQ(verified->written_bytes, 3 * 64 * kib);
    EXPECT_EQ(verified->attempts, 1u);
    EXPECT_TRUE(verified->damaged.empty());
    EXPECT_EQ(reported, 3u);
    // A byte of every page that is not zero, in one file.
    const std::string data = run_folder_of(paths(from)[0], "run") + "/data";
    {
        std::fstream file(data, std::ios::in | std::ios::out | std::ios::binary);
        for (uint64_t offset = 0; offset < std::filesystem::file_size(data); offset += 4096) {
            file.seekp(static_cast<std::streamoff>(offset)).put('x');
        }
    }
    verified = verify_store({.paths = paths(from), .run_name = "run"});
    ASSERT_TRUE(verified.ok());
    EXPECT_EQ(verified->damaged, (std::vector<std::string>{"place 0", "place 1", "place 2"}));
    const Status status =
        move_store({.from_paths = paths(from), .to_paths = paths("c"), .run_name = "run"});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::bad_data);
    EXPECT_EQ(folders(), "bd") << "a move that fails leaves the store where it was";
}

TEST_F(PromotionTest, AMoveWithoutRoomIsRefusedAndLeavesNothing) {
    make("ab", Opening::fresh, 1, true);
    const TempMount mounted(all_[2], "size=256k");
    if (!mounted.ok()) GTEST_SKIP() << "this user may not mount";
    const Status status =
        move_store({.from_paths = paths("ab"), .to_paths = paths("c"), .run_name = "run"});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::does_not_fit);
    EXPECT_EQ(folders(), "ab");
    expect_step("ab", 1);
}

// The record is in the page cache, whole, and not on the drive.
bool is_seal_of_successor(const std::string& file, const std::string& content) {
    return file.ends_with(".next/map") && LyingCache::holds_record(content);
}

TEST_F(PromotionTest, AMoveWhoseSealFailsLeavesTheStore) {
    for (const auto& [from, to] : {std::pair("ab", "c"), std::pair("ab", "ba")}) {
        make(from, Opening::fresh, 1, true);
        LyingCache cache(is_seal_of_successor);
        const Status status = move_store({.from_paths = paths(from),
                                          .to_paths = paths(to),
                                          .run_name = "run",
                                          .operations = cache.operations()});
        EXPECT_TRUE(cache.has_failed());
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().text().find("EIO"), std::string::npos) << status.error().text();
        EXPECT_EQ(folders(), "ab") << "and nothing of the successor";
        expect_step(from, 1);
    }
}

// Whoever filled it ended without a word, at the moment of the error.
TEST_F(PromotionTest, ASealThatFailedIsNoCommitToALook) {
    for (const char* to : {"ab", "cd"}) {
        make("ab", Opening::fresh, 1, true);
        const auto facts = look_at_store(paths("ab"), "run");
        ASSERT_TRUE(facts.ok());
        LyingCache cache(is_seal_of_successor);
        {
            auto successor = open_store(
                {.paths = paths(to),
                 .run_name = "run",
                 .places = places_of(Opening::successor),
                 .engine = IoEngine::threads,
                 .operations = cache.operations(),
                 .opening = Opening::successor,
                 .predecessor = {.uuid = (*facts)->uuid, .paths = (*facts)->known_paths}});
            ASSERT_TRUE(successor.ok()) << successor.error().text();
            EXPECT_FALSE(commit_and_wait(**successor, {.attempts = 2}).ok());
        }
        EXPECT_TRUE(cache.has_failed());
        const auto seen = look_at_store(paths("ab"), "run", cache.operations());
        ASSERT_TRUE(seen.ok()) << seen.error().text();
        ASSERT_TRUE(seen->has_value());
        EXPECT_EQ((*seen)->newest->record.attempts, 1u);
        expect_step("ab", 1);
        ASSERT_TRUE(remove_store(all_, "run").ok());
    }
}

// The record reached the drive and the fdatasync failed all the same: the move was given up, so the
// store stays where it was. Ended before each change: it is found there, or refused by name.
TEST_F(PromotionTest, ASuccessorThatIsDiscardedIsNeverPromoted) {
    int exit_code = 7;
    int step_count = 0;
    while (exit_code == 7) {
        step_count++;
        make("ab", Opening::fresh, 1, true);
        Uuid uuid = {};
        {
            auto successor = open("cab", Opening::successor, places_of(Opening::successor));
            ASSERT_TRUE(commit_and_wait(*successor, {.attempts = 2}).ok());
            uuid = successor->uuid();
        }
        exit_code = run_in_child([&] {
            int left = step_count;
            FileOperations operations;
            operations.remove_file = [&](const std::string& file) {
                if (--left == 0) _exit(7);
                return remove_file({}, file);
            };
            return discard_successor(paths("abc"), "run", uuid, operations).ok() ? 0 : 1;
        });
        ASSERT_TRUE(exit_code == 7 || exit_code == 0) << exit_code;
        EXPECT_EQ(look("abc").find("step 2"), std::string::npos) << step_count;
        expect_step("ab", 1);
        EXPECT_EQ(folders(), "ab") << step_count;
        ASSERT_TRUE(remove_store(all_, "run").ok());
    }
    EXPECT_EQ(step_count, 3 * 2 + 1) << "two files on each path";
    make("ab", Opening::fresh, 1, true);
    make("ab", Opening::successor, 2, true);
    EXPECT_NE(discard_successor(paths("ab"), "run", {}).error().text().find("is no part of it"),
              std::string::npos);
    EXPECT_TRUE(discard_successor(paths("cd"), "run", {}).ok()) << "there is none";
}

// Between the look and the open another process takes the store and commits.
TEST_F(PromotionTest, AStoreThatChangedSinceTheLookIsLeftAlone) {
    for (const bool is_move : {false, true}) {
        make("a", Opening::fresh, 1, true);
        int open_count = 0;
        FileOperations operations;
        operations.open = [&](const std::string& file, int flags, mode_t mode) {
            if (file.ends_with("headrace-run/map") && ++open_count == 2) {
                auto other = open("a", Opening::resume, places_of(Opening::fresh));
                CHECK(commit_and_wait(*other, {.attempts = 2}).ok());
            }
            return open_file({}, file, flags, mode);
        };
        const Status status = is_move ? move_store({.from_paths = paths("a"),
                                                    .to_paths = paths("b"),
                                                    .run_name = "run",
                                                    .operations = operations})
                                      : verify("a", {.operations = operations});
        ASSERT_FALSE(status.ok()) << is_move;
        EXPECT_NE(status.error().text().find("of step 2: another process went on with it"),
                  std::string::npos)
            << status.error().text();
        EXPECT_EQ(folders(), "a");
        EXPECT_EQ(look("a"), "step 2");
    }
}

// 7: the words were said; otherwise the alarm ends it.
TEST_F(PromotionTest, hang_a_request_that_never_ends_ends_a_verification_and_a_move) {
    make("a", Opening::fresh, 1, true);
    const auto ends = [&](const std::function<Status(const FileOperations&)>& use) {
        return run_in_child([&] {
            alarm(20);
            FileOperations operations;
            operations.before_request = [](const Request& request) -> std::optional<Fault> {
                const bool is_block = LyingCache::name_of(request.descriptor).ends_with("/data") &&
                                      request.memory.size() > page_bytes;  // no probe of an open
                return is_block ? std::optional(Fault{.is_lost = true}) : std::nullopt;
            };
            return use(operations).ok() ? 1 : 2;
        });
    };
    const auto leave = [](const std::string& why) {
        _exit(why.find("fetch of the place 'place 0'") != std::string::npos ? 7 : 3);
    };
    constexpr auto stuck_after = std::chrono::milliseconds(200);
    EXPECT_EQ(ends([&](const FileOperations& operations) {
                  return verify(
                      "a",
                      {.stuck_after = stuck_after, .on_stuck = leave, .operations = operations});
              }),
              7);
    EXPECT_EQ(ends([&](const FileOperations& operations) {
                  return move_store({.from_paths = paths("a"),
                                     .to_paths = paths("b"),
                                     .run_name = "run",
                                     .engine = IoEngine::threads,
                                     .stuck_after = stuck_after,
                                     .on_stuck = leave,
                                     .operations = operations});
              }),
              7);
}

TEST_F(PromotionTest, AMoveKeepsTheWeightsOfThePathsThatStay) {
    auto store = open_store({.paths = paths("abc"),
                             .run_name = "run",
                             .places = places_of(Opening::fresh),
                             .weights = {3, 2, 1},
                             .engine = IoEngine::threads,
                             .block_bytes = 16 * kib});
    ASSERT_TRUE(store.ok()) << store.error().text();
    ASSERT_TRUE(commit_and_wait(**store, {.attempts = 1}).ok());
    store->reset();
    const auto weights_on = [&](const std::string& from, const std::string& to) {
        const Status moved =
            move_store({.from_paths = paths(from), .to_paths = paths(to), .run_name = "run"});
        CHECK_TEXT(moved.ok(), moved.ok() ? "" : moved.error().text());
        const auto facts = look_at_store(paths(to), "run");
        CHECK(facts.ok());
        EXPECT_EQ((*facts)->paths, paths(to));
        return (*facts)->weights;
    };
    EXPECT_EQ(weights_on("abc", "cab"), (std::vector<uint32_t>{1, 3, 2}));
    EXPECT_EQ(weights_on("cab", "ba"), (std::vector<uint32_t>{2, 3}));
    EXPECT_EQ(weights_on("ab", "cb"), (std::vector<uint32_t>{1, 1}))
        << "one drive: nothing to weigh";
}

TEST_F(PromotionTest, AMoveToANewDriveWeighsThem) {
    const ImageMount mounted(folder_.path() + "/image", all_[2], make_ext4);
    if (!mounted.ok()) GTEST_SKIP() << "a loop device cannot be mounted here";
    make("ab", Opening::fresh, 1, true);
    const std::string cache_file = folder_.path() + "/drives.json";
    const int64_t now_unix_s = std::time(nullptr);
    for (const auto& [path, rate] : {std::pair(all_[0], 3e9), std::pair(all_[2], 1e9)}) {
        ASSERT_TRUE(
            DriveCache(cache_file)
                .keep(read_drive_facts(path), {.drive = {.read_bytes_per_s = rate,
                                                         .write_burst_bytes_per_s = rate,
                                                         .write_sustained_bytes_per_s = rate,
                                                         .mixed_bytes_per_s = rate},
                                               .measured_unix_s = now_unix_s}));
    }
    std::string notes;
    const Status moved =
        move_store({.from_paths = paths("ab"),
                    .to_paths = paths("ca"),
                    .run_name = "run",
                    .drive_cache = cache_file,
                    .note = [&](const std::string& line) { notes += line; },
                    .drives_of = [](const std::string& path) { return std::set{path}; }});
    ASSERT_TRUE(moved.ok()) << moved.error().text();
    EXPECT_NE(notes.find("blocks go round the paths 1 : 3"), std::string::npos) << notes;
    const auto facts = look_at_store(paths("ca"), "run");
    ASSERT_TRUE(facts.ok());
    EXPECT_EQ((*facts)->weights, (std::vector<uint32_t>{1, 3}));
    expect_step("ca", 1);
}

TEST_F(PromotionTest, ListAndLookTellWhatIsThere) {
    EXPECT_EQ(look("ab"), "nothing");
    make("ba", Opening::fresh, 3, true);
    std::filesystem::create_directory(all_[0] + "/headrace-half");
    std::filesystem::create_directory(all_[0] + "/headrace-foreign");
    std::ofstream(all_[0] + "/headrace-foreign/data") << "precious";
    auto listed = list_stores(all_[0]);
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->size(), 3u);
    EXPECT_NE((*listed)[0].fault.find("no store made it"), std::string::npos);
    EXPECT_NE((*listed)[1].fault.find("cut short"), std::string::npos);
    EXPECT_EQ((*listed)[2].run_name, "run");
    EXPECT_EQ((*listed)[2].path_index, 1u);
    EXPECT_FALSE((*listed)[2].attempts.has_value()) << "path 0 is b";
    EXPECT_FALSE((*listed)[2].is_live);
    listed = list_stores(all_[1]);
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->size(), 1u);
    EXPECT_EQ((*listed)[0].attempts, std::optional<uint64_t>(3));
    EXPECT_FALSE(list_stores(all_[1] + "/missing").ok());

    auto facts = look_at_store(paths("ab"), "run");
    ASSERT_TRUE(facts.ok());
    EXPECT_EQ((*facts)->paths, paths("ba"));
    EXPECT_EQ((*facts)->places, places_of(Opening::fresh));
    EXPECT_EQ((*facts)->weights, (std::vector<uint32_t>{1, 1}));
    EXPECT_EQ((*facts)->owner.pid, static_cast<uint32_t>(getpid()));
    EXPECT_FALSE((*facts)->is_live);
    EXPECT_FALSE((*facts)->older.has_value());
    EXPECT_NE(look("abc").find("and not on " + all_[2]), std::string::npos) << look("abc");
    EXPECT_NE(look("a").find("its part in"), std::string::npos) << look("a");
}

// A fresh store that was never committed is nothing to resume, whatever is missing of it.
TEST_F(PromotionTest, WithoutACommitNothingIsPrecious) {
    make("ab", Opening::fresh, 1, false);
    auto facts = look_at_store(paths("ab"), "run");
    ASSERT_TRUE(facts.ok());
    ASSERT_TRUE(facts->has_value());
    EXPECT_FALSE((*facts)->newest.has_value());
    EXPECT_EQ(look("abc"), "nothing");
    EXPECT_EQ(look("a"), "nothing");
}

}  // namespace
}  // namespace headrace::nvme
