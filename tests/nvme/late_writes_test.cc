// Goal: a successor is never overwritten by the late writes of a killed owner, and a forked child
// does not keep a dead owner's store. Method: an owner on a throttled drive (cgroup v1, root only)
// is killed with its queue full; the store is opened again at once, unthrottled, and written; then
// the drive gets the time that the late writes would have needed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <thread>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::mib;

constexpr uint64_t place_count = 16;
constexpr uint64_t place_bytes = 4 * mib;

// A cgroup whose members write to the drive of a folder at a limited rate.
class Throttle {
  public:
    Throttle(const std::string& folder, uint64_t bytes_per_s) {
        struct stat facts {};
        CHECK_EQ(stat(folder.c_str(), &facts), 0);
        if (mkdir(group_.c_str(), 0755) != 0 && errno != EEXIST) return;
        std::ofstream limit(group_ + "/blkio.throttle.write_bps_device");
        limit << major(facts.st_dev) << ":" << minor(facts.st_dev) << " " << bytes_per_s
              << std::flush;
        is_ok_ = limit.good();
    }
    Throttle(const Throttle&) = delete;
    ~Throttle() { rmdir(group_.c_str()); }
    bool ok() const { return is_ok_; }
    bool join() const {
        std::ofstream members(group_ + "/cgroup.procs");
        members << getpid() << std::flush;
        return members.good();
    }

  private:
    std::string group_ = "/sys/fs/cgroup/blkio/headrace_test_" + std::to_string(getpid());
    bool is_ok_ = false;
};

StoreOptions options_for(const std::string& path, IoEngine engine) {
    StoreOptions options{.paths = {path}, .run_name = "run"};
    for (uint64_t i = 0; i < place_count; i++) {
        options.places.push_back({.name = "place " + std::to_string(i), .size_bytes = place_bytes});
    }
    options.engine = engine;
    options.depth = 64;
    return options;
}

// Starts a write of every place and does not wait for them.
void start_writes(NvmeStore& store, const PageBuffer& source, Waiter& waiter) {
    for (offload::PlaceId place = 0; place < place_count; place++) {
        store.start({Direction::write, place, source.span(), waiter.done()});
    }
}

// Never returns: the owner waits for its end with the queue full.
[[noreturn]] void be_a_throttled_owner(const Throttle& throttle, const StoreOptions& options,
                                       int ready) {
    if (!throttle.join()) _exit(1);
    auto store = open_store(options);
    if (!store) _exit(2);
    PageBuffer source(place_bytes);
    source.fill(0x11);
    Waiter waiter;
    start_writes(**store, source, waiter);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (write(ready, "r", 1) != 1) _exit(3);
    while (true) pause();
}

// Kills an owner with writes in its queue, and opens and writes its store: how long that waited.
void succeed_a_killed_owner(const Throttle& throttle, const StoreOptions& options,
                            std::chrono::steady_clock::duration* waited) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t owner = fork();
    ASSERT_GE(owner, 0);
    if (owner == 0) be_a_throttled_owner(throttle, options, pipe_ends[1]);
    close(pipe_ends[1]);
    char ready = 0;
    ASSERT_EQ(read(pipe_ends[0], &ready, 1), 1) << "the owner could not begin";
    close(pipe_ends[0]);
    ASSERT_EQ(kill(owner, SIGKILL), 0);

    const auto killed_at = std::chrono::steady_clock::now();
    EXPECT_EQ(waitpid(owner, nullptr, 0), owner);  // with io_uring long before its last write
    auto store = open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    *waited = std::chrono::steady_clock::now() - killed_at;
    PageBuffer source(place_bytes);
    source.fill_random(7);
    Waiter waiter;
    start_writes(**store, source, waiter);
    waiter.wait_for(place_count);
    ASSERT_EQ(waiter.error(), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    PageBuffer target(place_bytes);
    for (offload::PlaceId place = 0; place < place_count; place++) {
        ASSERT_TRUE(read_place(**store, place, target.span()).ok());
        EXPECT_TRUE(source == target) << place;
    }
}

TEST(LateWrites, NoneReachesASuccessor) {
    for (const IoEngine engine : {IoEngine::uring, IoEngine::threads}) {
        if (engine == IoEngine::uring && !probe_io_uring().ok()) continue;
        std::chrono::steady_clock::duration waited{};
        // On a busy machine the queue may be empty before the owner is killed.
        for (int attempt = 0; attempt < 5 && waited < std::chrono::milliseconds(20); attempt++) {
            TempFolder folder;
            const Throttle throttle(folder.path(), 100 * mib);
            if (!throttle.ok()) GTEST_SKIP() << "no blkio cgroup (v1) that this user may use";
            ASSERT_NO_FATAL_FAILURE(
                succeed_a_killed_owner(throttle, options_for(folder.path(), engine), &waited));
        }
        EXPECT_GE(waited, std::chrono::milliseconds(20)) << "nothing was late: vacuous";
    }
}

// The owner forks a child that lives on, and is killed: the store is free at once.
TEST(LateWrites, AForkedChildLetsGoOfAKilledOwnersStore) {
    for (const IoEngine engine : {IoEngine::uring, IoEngine::threads}) {
        if (engine == IoEngine::uring && !probe_io_uring().ok()) continue;
        TempFolder folder;
        StoreOptions options = options_for(folder.path(), engine);
        options.places.resize(1);
        int pipe_ends[2];
        ASSERT_EQ(pipe(pipe_ends), 0);
        const pid_t owner = fork();
        ASSERT_GE(owner, 0);
        if (owner == 0) {
            auto store = open_store(options);
            if (!store) _exit(1);
            const pid_t child = fork();
            if (child == 0) {
                (*store)->let_go_in_child();
                const pid_t own = getpid();
                if (write(pipe_ends[1], &own, sizeof(own)) != sizeof(own)) _exit(1);
                while (true) pause();
            }
            while (true) pause();
        }
        pid_t child = 0;
        ASSERT_EQ(read(pipe_ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
        EXPECT_FALSE(open_store(options).ok()) << "the owner lives";
        ASSERT_EQ(kill(owner, SIGKILL), 0);
        EXPECT_EQ(waitpid(owner, nullptr, 0), owner);
        auto store = open_store(options);
        EXPECT_TRUE(store.ok()) << store.error().text();
        EXPECT_EQ(kill(child, 0), 0) << "the child lives";
        kill(child, SIGKILL);
        close(pipe_ends[0]);
        close(pipe_ends[1]);
    }
}

}  // namespace
}  // namespace headrace::nvme
