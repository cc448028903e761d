// Goal: what a kernel really says on a bad day reaches the user as one error that names path,
// offset, size and remedy, and the store ends in order. Method: file systems in image files that
// are shut down, filled and starved under a running store. Root only; case NVME-2.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include <cerrno>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"
#include "tests/nvme/image_mount.h"

namespace headrace::nvme {
namespace {

using offload::Direction;
using offload::kib;
using offload::mib;
using offload::Status;

StoreOptions store_in(const std::string& path, IoEngine engine, uint64_t place_count) {
    StoreOptions options{.paths = {path}, .run_name = "run"};
    for (uint64_t i = 0; i < place_count; i++) {
        options.places.push_back({.name = "place " + std::to_string(i),
                                  .size_bytes = mib,
                                  .copies = offload::Copies::scratch});
    }
    options.engine = engine;
    options.block_bytes = 256 * kib;
    return options;
}

std::vector<IoEngine> engines() {
    if (probe_io_uring().ok()) return {IoEngine::uring, IoEngine::threads};
    return {IoEngine::threads};
}

void expect_parts(const Status& status, const std::vector<std::string>& parts) {
    ASSERT_FALSE(status.ok());
    for (const std::string& part : parts) {
        EXPECT_NE(status.error().text().find(part), std::string::npos)
            << part << "\nin " << status.error().text();
    }
}

// Fills the file system of a folder to its last byte.
void fill_up(const std::string& file) {
    const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(descriptor, 0);
    const std::vector<char> bytes(256 * kib, 'f');
    while (write(descriptor, bytes.data(), bytes.size()) > 0) {
    }
    fsync(descriptor);
    close(descriptor);
}

// EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN are one number: no request reaches the drive any more, as
// when it is gone.
bool shut_down(const std::string& path) {
    uint32_t without_flush = 2;
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const int outcome = ioctl(descriptor, _IOR('X', 125, uint32_t), &without_flush);
    close(descriptor);
    return outcome == 0;
}

void lose_the_drive(const char* make) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        const std::string path = folder.make("drive");
        const ImageMount mounted(folder.path() + "/image", path, make);
        if (!mounted.ok()) GTEST_SKIP() << "cannot be made here: " << make;
        auto store = open_store(store_in(path, engine, 8));
        ASSERT_TRUE(store.ok()) << store.error().text();
        PageBuffer buffer(mib);
        for (offload::PlaceId place = 0; place < 8; place++) {
            ASSERT_TRUE(write_place(**store, place, buffer.span()).ok());
        }
        ASSERT_TRUE(sync_and_wait(**store).ok());
        if (!shut_down(path)) GTEST_SKIP() << "cannot be shut down: " << make;
        const std::string file = path + "/headrace-run/data";
        const std::vector<std::string> parts = {"'place 3'", "262144 bytes at offset ", file, "EIO",
                                                "dmesg"};
        expect_parts(write_place(**store, 3, buffer.span()), parts);
        expect_parts(read_place(**store, 3, buffer.span()), parts);
        expect_parts(sync_and_wait(**store), {"cannot make " + file + " durable", "EIO"});
        std::vector<PageBuffer> many;
        for (int i = 0; i < 8; i++) many.emplace_back(mib);
        Waiter waiter;
        for (offload::PlaceId place = 0; place < 8; place++) {
            (*store)->start({Direction::write, place, many[place].span(), waiter.done()});
        }
        store->reset();
        EXPECT_EQ(waiter.count(), 8u) << "each ends";
        EXPECT_NE(waiter.error(), "");
    }
}

TEST(RealErrors, ALostExt4IsNamed) {
    lose_the_drive(make_ext4);
}

TEST(RealErrors, ALostXfsIsNamed) {
    lose_the_drive(make_xfs);
}

// Without a reservation the drive fills in mid-run; with one it does not matter that it is full.
TEST(RealErrors, nvme_2_a_full_drive_in_mid_run) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        const std::string path = folder.make("drive");
        const ImageMount mounted(folder.path() + "/image", path, make_ext4);
        if (!mounted.ok()) GTEST_SKIP() << "a loop device cannot be mounted here";
        PageBuffer source(mib);
        PageBuffer target(mib);
        source.fill_random(2);
        StoreOptions options = store_in(path, engine, 16);
        options.operations.allocate = [](int, uint64_t) { return -EOPNOTSUPP; };
        auto store = open_store(options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        ASSERT_TRUE(write_place(**store, 0, source.span()).ok());
        fill_up(path + "/filler");
        expect_parts(write_place(**store, 9, source.span()),
                     {"'place 9'", " bytes at offset ", path + "/headrace-run/data", "ENOSPC",
                      "free there", "choose another path"});
        ASSERT_TRUE(write_place(**store, 0, source.span()).ok()) << "what has its space goes on";
        ASSERT_TRUE(read_place(**store, 0, target.span()).ok());
        EXPECT_TRUE(source == target);
        store->reset();
        ASSERT_TRUE(remove_store({path}, "run").ok());
        std::filesystem::remove(path + "/filler");

        options.operations.allocate = nullptr;
        auto reserved = open_store(options);
        ASSERT_TRUE(reserved.ok()) << reserved.error().text();
        fill_up(path + "/filler");
        for (offload::PlaceId place = 0; place < 16; place++) {
            ASSERT_TRUE(write_place(**reserved, place, source.span()).ok()) << place;
        }
        EXPECT_TRUE(sync_and_wait(**reserved).ok());
    }
}

// Reserved on a thin drive that has no more to give: the drive says so request by request, and the
// flush afterwards says nothing, so only the completion tells.
TEST(RealErrors, AThinDriveThatRunsOutIsNamed) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        const std::string thin = folder.make("thin");
        const std::string path = folder.make("drive");
        const TempMount backing(thin, "size=24m");
        if (!backing.ok()) GTEST_SKIP() << "this user may not mount";
        const ImageMount mounted(thin + "/image", path, make_ext4);
        if (!mounted.ok()) GTEST_SKIP() << "a loop device cannot be mounted here";
        auto store = open_store(store_in(path, engine, 32));
        ASSERT_TRUE(store.ok()) << store.error().text();
        fill_up(thin + "/filler");
        PageBuffer buffer(mib);
        uint64_t failed_count = 0;
        for (offload::PlaceId place = 0; place < 32; place++) {
            const Status written = write_place(**store, place, buffer.span());
            if (written.ok()) continue;
            failed_count++;
            const std::string& text = written.error().text();
            EXPECT_TRUE(text.find("ENOSPC") != std::string::npos ||
                        text.find("EIO") != std::string::npos)
                << text;
            EXPECT_NE(text.find(" bytes at offset "), std::string::npos) << text;
        }
        EXPECT_GT(failed_count, 0u);
    }
}

// A limit on file sizes that comes into force in mid-run: with its signal ignored it is an error
// like any other. 0: as it should be.
int meet_a_file_size_limit(const std::string& path, IoEngine engine) {
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR) return 1;
    auto store = open_store(store_in(path, engine, 4));
    if (!store) return 2;
    PageBuffer buffer(mib);
    if (!write_place(**store, 3, buffer.span()).ok()) return 3;
    const rlimit limit{.rlim_cur = mib + 64 * kib, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 4;
    const Status failed = write_place(**store, 3, buffer.span());
    if (failed.ok()) return 5;
    for (const char* part : {"EFBIG", "ulimit -f", "'place 3'", " bytes at offset "}) {
        if (failed.error().text().find(part) == std::string::npos) return 6;
    }
    if (!write_place(**store, 0, buffer.span()).ok()) return 7;
    return read_place(**store, 3, buffer.span()).ok() ? 0 : 8;
}

TEST(RealErrors, AFileSizeLimitInMidRunIsNamed) {
    for (const IoEngine engine : engines()) {
        TempFolder folder;
        EXPECT_EQ(run_in_child([&] { return meet_a_file_size_limit(folder.path(), engine); }), 0);
    }
}

}  // namespace
}  // namespace headrace::nvme
