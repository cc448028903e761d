// Goal: a request that never completes ends the run with words instead of hanging it, and nothing
// else ever does. Method: a shim that loses one completion, in a child process that must leave with
// exit code 1 and the text in a pipe; both engines, and each move of a commit.
#include "nvme/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "nvme/clock.h"
#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::kib;
using offload::page_bytes;
using offload::Status;

constexpr auto stuck_after = std::chrono::milliseconds(200);
constexpr uint64_t block_bytes = 64 * kib;

StoreOptions watched_store(const std::string& path, IoEngine engine) {
    StoreOptions options{.paths = {path}, .run_name = "run"};
    options.places = {
        {.name = "hi layers.3/0", .size_bytes = 4 * block_bytes, .copies = offload::Copies::two},
        {.name = "stash", .size_bytes = 4 * block_bytes, .copies = offload::Copies::scratch}};
    options.block_bytes = block_bytes;
    options.engine = engine;
    options.stuck_after = stuck_after;
    return options;
}

std::vector<IoEngine> engines() {
    if (probe_io_uring().ok()) return {IoEngine::uring, IoEngine::threads};
    return {IoEngine::threads};
}

// What a child said and how it ended.
struct Ending {
    int code = 0;
    std::string text;
    double seconds = 0;
};

// `use` gets a store that is watched as the command line would: the words are said and the process
// is left. What it returns is the exit code where nothing was stuck.
Ending watch_in_child(StoreOptions options, const std::function<int(NvmeStore&)>& use) {
    std::array<int, 2> ends{};
    CHECK_EQ(pipe(ends.data()), 0);
    const uint64_t before_ns = now_ns();
    Ending ending;
    ending.code = run_in_child([&] {
        options.on_stuck = [&](const std::string& text) {
            CHECK_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
            _exit(1);
        };
        auto store = open_store(options);
        if (!store) return 50;
        const int code = use(**store);
        store->reset();
        return code;
    });
    ending.seconds = static_cast<double>(now_ns() - before_ns) / 1e9;
    close(ends[1]);
    std::array<char, 4096> buffer{};
    const ssize_t count = read(ends[0], buffer.data(), buffer.size());
    if (count > 0) ending.text.assign(buffer.data(), static_cast<size_t>(count));
    close(ends[0]);
    return ending;
}

void expect_stuck(const Ending& ending, const std::vector<std::string>& parts) {
    EXPECT_EQ(ending.code, 1);
    EXPECT_LT(ending.seconds, 2.0);
    EXPECT_GE(ending.seconds, 0.2);
    for (const std::string& part : parts) {
        EXPECT_NE(ending.text.find(part), std::string::npos) << part << "\nin " << ending.text;
    }
}

// The third block of a write, and of a read: the others end, that one never does.
TEST(Watchdog, hang_a_lost_completion_names_lane_op_and_object) {
    TempFolder folder;
    for (const IoEngine engine : engines()) {
        for (const Direction lost : {Direction::write, Direction::read}) {
            StoreOptions options = watched_store(folder.path(), engine);
            std::atomic<uint64_t> lost_offset = 0;
            std::atomic<bool> is_armed = false;
            options.operations.before_request =
                [&](const Request& request) -> std::optional<Fault> {
                if (!is_armed || request.direction != lost) return {};
                if (request.offset_bytes / block_bytes % 4 != 2) return {};
                return Fault{.is_lost = true};
            };
            const Ending ending = watch_in_child(options, [&](NvmeStore& store) {
                PageBuffer buffer(4 * block_bytes);
                if (lost == Direction::read && !write_place(store, 0, buffer.span()).ok()) return 2;
                is_armed = true;
                const bool is_read = lost == Direction::read;
                return (is_read ? read_place(store, 0, buffer.span())
                                : write_place(store, 0, buffer.span()))
                               .ok()
                           ? 3
                           : 4;
            });
            const bool is_read = lost == Direction::read;
            expect_stuck(ending,
                         {is_read ? "nvme_read lane" : "nvme_write lane",
                          is_read ? "fetch of the place" : "evict of the place", "'hi layers.3/0'",
                          folder.path() + "/headrace-run/data", "65536 bytes at offset ",
                          "has not ended for 0.2 s", "dmesg", "last commit"});
        }
    }
}

TEST(Watchdog, hang_a_lost_sync_record_and_seal_are_named) {
    TempFolder folder;
    for (const IoEngine engine : engines()) {
        StoreOptions options = watched_store(folder.path(), engine);
        std::atomic<bool> is_armed = false;
        options.operations.sync_data = [&](int descriptor) {
            while (is_armed) pause();
            return fdatasync(descriptor) < 0 ? -errno : 0;
        };
        const Ending sync = watch_in_child(options, [&](NvmeStore& store) {
            is_armed = true;
            return sync_and_wait(store).ok() ? 3 : 4;
        });
        expect_stuck(sync, {"nvme_write lane", "sync of " + folder.path() + "/headrace-run/data"});

        is_armed = false;
        const Ending seal = watch_in_child(options, [&](NvmeStore& store) {
            if (!sync_and_wait(store).ok()) return 2;
            Waiter waiter;
            store.record({}, waiter.done());
            waiter.wait_for(1);
            is_armed = true;
            store.seal(waiter.done());
            waiter.wait_for(2);
            return 3;
        });
        expect_stuck(seal, {"nvme_write lane", "seal of " + folder.path() + "/headrace-run/map"});
    }
}

// A sync that nobody waits for is found by whoever closes the store.
TEST(Watchdog, hang_closing_a_stuck_store_is_watched) {
    TempFolder folder;
    StoreOptions options = watched_store(folder.path(), IoEngine::threads);
    std::atomic<bool> is_armed = false;
    options.operations.sync_data = [&](int) {
        while (is_armed) pause();
        return 0;
    };
    const Ending ending = watch_in_child(options, [&](NvmeStore& store) {
        is_armed = true;
        store.sync(0, [](Status) {});
        return 5;
    });
    expect_stuck(ending, {"sync of "});
}

// The caller may also leave from its own thread: the store is abandoned, and no destructor waits.
TEST(Watchdog, hang_an_abandoned_store_is_left_behind) {
    TempFolder folder;
    for (const IoEngine engine : engines()) {
        StoreOptions options = watched_store(folder.path(), engine);
        std::atomic<bool> is_armed = false;
        options.operations.before_request = [&](const Request&) -> std::optional<Fault> {
            if (!is_armed) return {};
            return Fault{.is_lost = true};
        };
        const int code = run_in_child([&] {
            std::atomic<bool> is_stuck = false;
            options.on_stuck = [&](const std::string&) {
                is_stuck = true;
                is_stuck.notify_one();
            };
            auto store = open_store(options);
            if (!store) return 2;
            is_armed = true;
            PageBuffer buffer(block_bytes);
            (*store)->start({Direction::write, 0, buffer.span(), [](Status) {}});
            is_stuck.wait(false);
            abandon(std::move(*store));
            return 1;
        });
        EXPECT_EQ(code, 1);
    }
}

// A slow drive is not a stuck one: every request ends in time, though the run takes much longer.
TEST(Watchdog, ASlowDriveIsNotStuck) {
    TempFolder folder;
    StoreOptions options = watched_store(folder.path(), IoEngine::threads);
    std::atomic<bool> is_slow = false;
    options.operations.before_request = [&](const Request&) -> std::optional<Fault> {
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(40));
        return {};
    };
    std::atomic<int> stuck_count = 0;
    options.on_stuck = [&](const std::string&) { stuck_count++; };
    auto store = open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    is_slow = true;
    PageBuffer buffer(4 * block_bytes);
    const uint64_t before_ns = now_ns();
    while (now_ns() - before_ns < 600'000'000) {
        ASSERT_TRUE(write_place(**store, 0, buffer.span()).ok());
    }
    store->reset();
    EXPECT_EQ(stuck_count, 0);
}

TEST(Watchdog, LooksRarelyAndTellsOnce) {
    std::atomic<int> look_count = 0;
    std::atomic<int> stuck_count = 0;
    const uint64_t begin_ns = now_ns();
    std::atomic<bool> is_busy = true;
    {
        Watchdog watchdog(
            80'000'000,
            [&]() -> std::optional<Pending> {
                look_count++;
                Pending pending{.lane = "nvme_read", .op = "fetch", .place = "p", .path = "/data"};
                pending.size_bytes = page_bytes;
                pending.started_ns = is_busy ? now_ns() - 1'000'000 : begin_ns;
                return pending;
            },
            [&](const std::string& text) {
                stuck_count++;
                EXPECT_NE(text.find("fetch of the place 'p'"), std::string::npos) << text;
            });
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        EXPECT_EQ(stuck_count, 0) << "each look saw another request";
        EXPECT_LE(look_count, 6);
        is_busy = false;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        EXPECT_EQ(stuck_count, 1);
    }
    EXPECT_EQ(stuck_count, 1);
}

// Stopped for longer than stuck_after (Ctrl-Z): what is old then has ended long ago, and gets a
// moment to say so.
TEST(Watchdog, AProcessThatWasStoppedIsNotStuck) {
    std::atomic<int> stuck_count = 0;
    std::atomic<uint64_t> started_ns = now_ns();
    std::atomic<bool> was_seen_late = false;
    Watchdog watchdog(
        80'000'000,
        [&]() -> std::optional<Pending> {
            Pending pending{.lane = "nvme_read", .op = "sync", .place = {}, .path = "/data"};
            pending.started_ns = started_ns;
            // At first sight it is ten times too old; the next look finds another request.
            if (!was_seen_late.exchange(true)) {
                pending.started_ns = now_ns() - 800'000'000;
            } else {
                started_ns = now_ns();
            }
            return pending;
        },
        [&](const std::string&) { stuck_count++; });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_TRUE(was_seen_late);
    EXPECT_EQ(stuck_count, 0);
}

}  // namespace
}  // namespace headrace::nvme
