// Goal: the store as a whole on good and bad days: full drives, odd file systems, short results,
// second openers, budgets. Method: real folders and small mounts, and a shim for the rest. Cases
// NVME-2, -4, -5, -9, and the two of several swap paths (DeepSpeed 2195 and 5508).
#include "nvme/nvme_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <fstream>

#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::ErrorCode;
using offload::kib;
using offload::mib;
using offload::page_bytes;
using offload::Status;

StoreOptions store_of(std::vector<std::string> paths, uint64_t place_count, uint64_t place_bytes) {
    StoreOptions options{.paths = std::move(paths), .run_name = "run"};
    for (uint64_t i = 0; i < place_count; i++) {
        options.places.push_back({.name = "place " + std::to_string(i),
                                  .size_bytes = place_bytes,
                                  .copies = offload::Copies::scratch});
    }
    options.block_bytes = 64 * kib;
    return options;
}

std::vector<IoEngine> engines() {
    if (probe_io_uring().ok()) return {IoEngine::uring, IoEngine::threads};
    return {IoEngine::threads};
}

// Writes and reads back the first place.
void expect_round_trip(NvmeStore& store) {
    const uint64_t size_bytes = store.places()[0].size_bytes;
    PageBuffer source(size_bytes);
    PageBuffer target(size_bytes);
    source.fill_random(1);
    const Status written = write_place(store, 0, source.span());
    ASSERT_TRUE(written.ok()) << written.error().text();
    ASSERT_TRUE(sync_and_wait(store).ok());
    const Status read = read_place(store, 0, target.span());
    ASSERT_TRUE(read.ok()) << read.error().text();
    EXPECT_TRUE(source == target);
}

TEST(NvmeStore, nvme_2_too_little_space_is_refused_with_the_numbers) {
    TempFolder folder;
    const std::string path = folder.make("small");
    const TempMount mounted(path, "size=4m");
    if (!mounted.ok()) GTEST_SKIP() << "this user may not mount";
    const StoreOptions options = store_of({path}, 5, mib);
    const uint64_t needed_bytes = store_bytes_of(options.places, 1);
    auto store = open_store(options);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::does_not_fit);
    const std::string error = store.error().text();
    for (const std::string& part :
         {std::to_string(needed_bytes) + " bytes", std::string("4194304 bytes"), path}) {
        EXPECT_NE(error.find(part), std::string::npos) << error;
    }
    EXPECT_TRUE(std::filesystem::is_empty(path));
    EXPECT_TRUE(open_store(store_of({path}, 3, mib)).ok());
    // What the older store of the run holds counts as room.
    EXPECT_TRUE(open_store(store_of({path}, 3, mib)).ok());
}

// A file system that cannot reserve fills up in mid-run: the write fails with path, bytes wanted,
// bytes free and errno, and what was written before is intact.
TEST(NvmeStore, nvme_2_a_drive_that_fills_in_mid_run_names_itself) {
    TempFolder folder;
    const std::string path = folder.make("small");
    const TempMount mounted(path, "size=4m");
    if (!mounted.ok()) GTEST_SKIP() << "this user may not mount";
    for (const IoEngine engine : engines()) {
        StoreOptions options = store_of({path}, 3, mib);
        options.engine = engine;
        options.operations.allocate = [](int, uint64_t) { return -EOPNOTSUPP; };
        auto store = open_store(options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        EXPECT_EQ((*store)->notes().size(), 2u) << "cannot reserve; page cache";
        expect_round_trip(**store);
        std::ofstream filler(path + "/filler");
        filler << std::string(4 * mib, 'f') << std::flush;
        PageBuffer buffer(mib);
        const Status failed = write_place(**store, 1, buffer.span());
        ASSERT_FALSE(failed.ok());
        for (const std::string& part :
             {std::string("'place 1'"), std::string("cannot write"), std::string("bytes at offset"),
              path + "/headrace-run/data", std::string("ENOSPC"), std::string("free there")}) {
            EXPECT_NE(failed.error().text().find(part), std::string::npos) << failed.error().text();
        }
        PageBuffer source(mib);
        source.fill_random(1);
        ASSERT_TRUE(read_place(**store, 0, buffer.span()).ok());
        EXPECT_TRUE(source == buffer);
        filler.close();
        std::filesystem::remove(path + "/filler");
        EXPECT_TRUE(write_place(**store, 1, buffer.span()).ok()) << "room again, and it goes on";
        store->reset();
        ASSERT_TRUE(remove_store({path}, "run").ok());
    }
}

// Two swap paths and more: the bytes are split evenly, and the one that is full is named.
TEST(NvmeStore, deepspeed_2195_5508_paths_share_and_the_full_one_is_named) {
    TempFolder folder;
    std::vector<std::string> paths = {folder.make("a"), folder.make("b"), folder.make("c")};
    {
        auto store = open_store(store_of(paths, 30, 3 * mib));
        ASSERT_TRUE(store.ok()) << store.error().text();
        PageBuffer buffer(3 * mib);
        for (offload::PlaceId place = 0; place < 10; place++) {
            ASSERT_TRUE(write_place(**store, place, buffer.span()).ok());
        }
        for (size_t path = 0; path < 3; path++) {
            EXPECT_NEAR(static_cast<double>((*store)->bytes_on(path)), 30.0 * mib, 1.5 * mib);
            EXPECT_NEAR(static_cast<double>((*store)->statistics(path).write_bytes), 10.0 * mib,
                        0.5 * mib);
        }
    }
    ASSERT_TRUE(remove_store(paths, "run").ok());
    const TempMount mounted(paths[1], "size=8m");
    if (!mounted.ok()) GTEST_SKIP() << "this user may not mount";
    auto store = open_store(store_of(paths, 30, 3 * mib));
    ASSERT_FALSE(store.ok());
    EXPECT_NE(store.error().text().find("in " + paths[1] + " and"), std::string::npos)
        << store.error().text();
    EXPECT_EQ(store.error().text().find(paths[0]), std::string::npos);
    for (const std::string& path : paths) EXPECT_TRUE(std::filesystem::is_empty(path));
}

TEST(NvmeStore, AFailingPathIsNamedAndNewFoldersGoAway) {
    TempFolder folder;
    const std::vector<std::string> paths = {folder.make("a"), folder.make("b")};
    StoreOptions options = store_of(paths, 4, mib);
    std::atomic<int> call_count = 0;
    options.operations.allocate = [&](int descriptor, uint64_t size_bytes) {
        if (++call_count == 3) return -ENOSPC;  // data of the second path
        return fallocate(descriptor, 0, 0, static_cast<off_t>(size_bytes)) < 0 ? -errno : 0;
    };
    auto store = open_store(options);
    ASSERT_FALSE(store.ok());
    EXPECT_NE(store.error().text().find(paths[1] + "/headrace-run/data"), std::string::npos)
        << store.error().text();
    for (const std::string& path : paths) EXPECT_TRUE(std::filesystem::is_empty(path));
}

// A place of five times what may be in flight is streamed; more transfers than the depth wait.
TEST(NvmeStore, nvme_4_big_places_are_streamed_and_busy_queues_wait) {
    TempFolder folder;
    for (const IoEngine engine : engines()) {
        StoreOptions options = store_of({folder.path()}, 12, 640 * kib);
        options.engine = engine;
        options.depth = 2;
        auto store = open_store(options);
        ASSERT_TRUE(store.ok());
        std::deque<PageBuffer> sources;
        Waiter waiter;
        for (offload::PlaceId place = 0; place < 12; place++) {
            sources.emplace_back(640 * kib).fill_random(place);
            (*store)->start({Direction::write, place, sources[place].span(), waiter.done()});
        }
        waiter.wait_for(12);
        PageBuffer target(640 * kib);
        for (offload::PlaceId place = 0; place < 12; place++) {
            ASSERT_TRUE(read_place(**store, place, target.span()).ok());
            EXPECT_TRUE(target == sources[place]);
        }
        EXPECT_EQ(waiter.error(), "");
        const PathStatistics statistics = (*store)->statistics(0);
        EXPECT_EQ(statistics.read_bytes, 12 * 640 * kib);
        EXPECT_EQ(statistics.write_bytes, 12 * 640 * kib);
        EXPECT_EQ(statistics.request_count, 240u);
        EXPECT_LE(statistics.depth_max, 2u);
    }
}

TEST(NvmeStore, nvme_5_file_systems_in_memory_get_one_warning) {
    TempFolder folder("/dev/shm");
    for (const IoEngine engine : engines()) {
        StoreOptions options = store_of({folder.path()}, 2, mib);
        options.engine = engine;
        auto store = open_store(options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        ASSERT_EQ((*store)->notes().size(), 1u);
        EXPECT_NE((*store)->notes()[0].find("page cache"), std::string::npos);
        EXPECT_TRUE((*store)->is_buffered(0));
        expect_round_trip(**store);
    }
}

TEST(NvmeStore, nvme_5_overlay_takes_a_store) {
    TempFolder folder;
    const std::string merged = folder.make("merged");
    const std::string layers = "lowerdir=" + folder.make("lower") +
                               ",upperdir=" + folder.make("upper") +
                               ",workdir=" + folder.make("work");
    if (mount("overlay", merged.c_str(), "overlay", 0, layers.c_str()) != 0) {
        GTEST_SKIP() << "overlay cannot be mounted here";
    }
    {
        auto store = open_store(store_of({merged}, 2, mib));
        ASSERT_TRUE(store.ok()) << store.error().text();
        EXPECT_LE((*store)->notes().size(), 1u);
        expect_round_trip(**store);
    }
    umount2(merged.c_str(), MNT_DETACH);
}

// EINVAL at open, and EINVAL only at the first I/O: one warning, then equal round trips.
TEST(NvmeStore, nvme_5_einval_falls_back_with_one_warning) {
    for (const IoEngine engine : engines()) {
        for (const bool is_at_open : {true, false}) {
            TempFolder folder;
            StoreOptions options = store_of({folder.path()}, 2, mib);
            options.engine = engine;
            if (is_at_open) {
                options.operations.open = [](const std::string& path, int flags, mode_t mode) {
                    if ((flags & O_DIRECT) != 0) return -EINVAL;
                    const int descriptor = ::open(path.c_str(), flags, mode);
                    return descriptor < 0 ? -errno : descriptor;
                };
            } else {
                options.operations.before_request =
                    [](const Request& request) -> std::optional<Fault> {
                    if ((fcntl(request.descriptor, F_GETFL) & O_DIRECT) == 0) return {};
                    return Fault{.executed_bytes = 0, .result = -EINVAL};
                };
            }
            auto store = open_store(options);
            ASSERT_TRUE(store.ok()) << store.error().text();
            EXPECT_EQ((*store)->notes().size(), 1u);
            EXPECT_TRUE((*store)->is_buffered(0));
            expect_round_trip(**store);
        }
    }
}

// Without O_DIRECT the drive's refusal comes when pages are written back: the write must fail then.
TEST(NvmeStore, nvme_5_an_error_of_writing_back_fails_the_write) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        StoreOptions options = store_of({folder.path()}, 2, mib);
        options.engine = engine;
        options.operations.open = [](const std::string& path, int flags, mode_t mode) {
            if ((flags & O_DIRECT) != 0) return -EINVAL;
            const int descriptor = ::open(path.c_str(), flags, mode);
            return descriptor < 0 ? -errno : descriptor;
        };
        options.operations.sync_range = [](int, uint64_t, uint64_t) { return -EIO; };
        auto store = open_store(options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        PageBuffer bytes(mib);
        const offload::Status status =
            transfer_and_wait(**store, Direction::write, 0, bytes.span());
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().text().find("write back"), std::string::npos);
    }
}

// Pages of the data file that the page cache holds.
uint64_t cached_bytes(const std::string& path, uint64_t size_bytes) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* mapped = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    std::vector<unsigned char> residence(size_bytes / page_bytes);
    uint64_t count = 0;
    if (mapped != MAP_FAILED && mincore(mapped, size_bytes, residence.data()) == 0) {
        for (const unsigned char page : residence) count += page & 1;
    }
    munmap(mapped, size_bytes);
    ::close(descriptor);
    return count * page_bytes;
}

TEST(NvmeStore, nvme_5_buffered_mode_leaves_the_page_cache_empty) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        StoreOptions options = store_of({folder.path()}, 8, mib);
        options.engine = engine;
        options.operations.open = [](const std::string& path, int flags, mode_t mode) {
            const int descriptor = ::open(path.c_str(), flags & ~O_DIRECT, mode);
            if ((flags & O_DIRECT) != 0) {
                ::close(descriptor);
                return -EINVAL;
            }
            return descriptor;
        };
        auto store = open_store(options);
        ASSERT_TRUE(store.ok());
        PageBuffer buffer(mib);
        for (offload::PlaceId place = 0; place < 8; place++) {
            ASSERT_TRUE(write_place(**store, place, buffer.span()).ok());
            ASSERT_TRUE(read_place(**store, place, buffer.span()).ok());
        }
        // 16 MiB went through; what may stay is what was in flight last.
        EXPECT_LE(cached_bytes(folder.path() + "/headrace-run/data", 8 * mib), 512 * kib);
    }
}

TEST(NvmeStore, nvme_5_refusals_are_not_swallowed_by_the_fallback) {
    for (const int error_number : {EACCES, ENOENT, EROFS}) {
        TempFolder folder;
        StoreOptions options = store_of({folder.path()}, 2, mib);
        options.operations.open = [&](const std::string& path, int flags, mode_t mode) {
            if ((flags & O_DIRECT) != 0) return -error_number;
            const int descriptor = ::open(path.c_str(), flags, mode);
            return descriptor < 0 ? -errno : descriptor;
        };
        auto store = open_store(options);
        ASSERT_FALSE(store.ok());
        EXPECT_NE(store.error().text().find(strerrorname_np(error_number)), std::string::npos);
        EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    }
}

// Short counts, some inside a page, EINTR and EAGAIN, by the thousand: equal bytes, and no hang.
TEST(NvmeStore, nvme_9_a_thousand_bad_runs_lose_nothing) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        std::mutex mutex;
        std::mt19937_64 random(42);
        uint64_t fault_count = 0;
        StoreOptions options = store_of({folder.path()}, 4, 32 * kib);
        options.engine = engine;
        options.block_bytes = 16 * kib;
        options.operations.before_request = [&](const Request& request) -> std::optional<Fault> {
            std::lock_guard lock(mutex);
            const uint64_t choice = random() % 4;
            if (choice == 0) return {};
            fault_count++;
            if (choice == 1) return Fault{.executed_bytes = 0, .result = -EINTR};
            if (choice == 2) return Fault{.executed_bytes = 0, .result = -EAGAIN};
            const uint64_t count = 1 + random() % request.memory.size();
            return Fault{.executed_bytes = count / page_bytes * page_bytes,
                         .result = static_cast<int64_t>(count)};
        };
        options.operations.before_submit = [&] {
            std::lock_guard lock(mutex);
            return random() % 4 == 0 ? -EINTR : 0;
        };
        auto store = open_store(options);
        ASSERT_TRUE(store.ok());
        PageBuffer source(32 * kib);
        PageBuffer target(32 * kib);
        for (uint64_t run = 0; run < 500; run++) {  // of a write and a read
            const auto place = static_cast<offload::PlaceId>(run % 4);
            source.fill_random(run);
            target.fill(0xEE);
            ASSERT_TRUE(write_place(**store, place, source.span()).ok()) << "run " << run;
            ASSERT_TRUE(read_place(**store, place, target.span()).ok()) << "run " << run;
            ASSERT_TRUE(source == target) << "run " << run;
        }
        EXPECT_GT(fault_count, 1000u);
    }
}

TEST(NvmeStore, nvme_9_nothing_before_the_expected_end_is_an_error_with_its_offset) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        StoreOptions options = store_of({folder.path()}, 1, mib);
        options.engine = engine;
        auto store = open_store(options);
        ASSERT_TRUE(store.ok());
        PageBuffer buffer(mib);
        ASSERT_TRUE(write_place(**store, 0, buffer.span()).ok());
        ASSERT_EQ(truncate((folder.path() + "/headrace-run/data").c_str(), 512 * kib), 0);
        const Status failed = read_place(**store, 0, buffer.span());
        ASSERT_FALSE(failed.ok());
        EXPECT_NE(failed.error().text().find("0 bytes were moved"), std::string::npos);
        EXPECT_NE(failed.error().text().find("at offset "), std::string::npos);
        const Status flushed = sync_and_wait(**store);
        ASSERT_FALSE(flushed.ok()) << "a file that shrank is not durable";
        EXPECT_NE(flushed.error().text().find("524288"), std::string::npos);
    }
}

TEST(NvmeStore, ABudgetThatIsTooSmallIsRefused) {
    TempFolder folder;
    StoreOptions options = store_of({folder.path()}, 4, mib);
    options.budget_bytes = store_bytes_of(options.places, 1) - 1;
    auto store = open_store(options);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::does_not_fit);
    EXPECT_NE(store.error().text().find("nvme_budget"), std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    options.budget_bytes++;
    ASSERT_TRUE(open_store(options).ok());
    uint64_t file_bytes = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path())) {
        if (file.is_regular_file()) file_bytes += file.file_size();
    }
    EXPECT_EQ(file_bytes, options.budget_bytes) << "what is counted is what is made";
}

TEST(NvmeStore, ALiveStoreIsRefusedWithItsOwner) {
    TempFolder folder;
    const StoreOptions options = store_of({folder.path()}, 1, mib);
    auto store = open_store(options);
    ASSERT_TRUE(store.ok());
    auto second = open_store(options);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().text().find("process " + std::to_string(getpid()) + " on host"),
              std::string::npos)
        << second.error().text();
    EXPECT_FALSE(remove_store(options.paths, "run").ok());
    expect_round_trip(**store);
    StoreOptions other = options;
    other.run_name = "other";
    EXPECT_TRUE(open_store(other).ok()) << "another name lives beside it";
}

// A killed owner leaves its files; the next run takes them over, and reads zeros.
TEST(NvmeStore, TheStoreOfAKilledRunIsReplaced) {
    TempFolder folder;
    for (const IoEngine engine : engines()) {
        StoreOptions options = store_of({folder.path()}, 2, mib);
        options.engine = engine;
        EXPECT_EQ(run_in_child([&] {
                      auto store = open_store(options);
                      if (!store) return 1;
                      PageBuffer buffer(mib);
                      if (!write_place(**store, 0, buffer.span()).ok()) return 2;
                      kill(getpid(), SIGKILL);
                      return 3;
                  }),
                  1000 + SIGKILL);
        options.places.pop_back();
        auto store = open_store(options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        PageBuffer buffer(mib);
        ASSERT_TRUE(read_place(**store, 0, buffer.span()).ok());
        EXPECT_TRUE(is_all(buffer.span(), 0));
        EXPECT_EQ((*store)->statistics(0).read_bytes, 0u) << "zeros need no I/O";
        expect_round_trip(**store);
    }
}

// A forked child (a data loader) must not keep a closed store's lock.
TEST(NvmeStore, AForkedChildDoesNotKeepAClosedStore) {
    TempFolder folder;
    const StoreOptions options = store_of({folder.path()}, 1, mib);
    auto store = open_store(options);
    ASSERT_TRUE(store.ok());
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    store->reset();
    EXPECT_TRUE(open_store(options).ok());
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

TEST(NvmeStoreDeathTest, ABadTransferIsABug) {
    TempFolder folder;
    auto store = open_store(store_of({folder.path()}, 1, mib));
    ASSERT_TRUE(store.ok());
    PageBuffer buffer(2 * mib);
    const auto done = [](Status) {};
    NvmeStore& target = **store;
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(target.start({Direction::read, 1, buffer.first(mib), done}), "CHECK failed");
    EXPECT_DEATH(target.start({Direction::read, 0, buffer.span(), done}), "CHECK failed");
    EXPECT_DEATH(target.start({Direction::read, 0, buffer.first(513), done}), "CHECK failed");
    EXPECT_DEATH(target.start({Direction::read, 0, buffer.span().subspan(64, 4096), done}),
                 "CHECK failed");
}

}  // namespace
}  // namespace headrace::nvme
