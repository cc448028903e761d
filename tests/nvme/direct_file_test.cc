// Goal: one file of a store opens as it can, never loses a byte of an odd length, and is owned by
// one. Method: real files, with a shim where a bad day must be made. Case NVME-1.
#include "nvme/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "nvme/block.h"
#include "offload/units.h"
#include "tests/nvme/fixture.h"
#include "tests/nvme/image_mount.h"

namespace headrace::nvme {
namespace {

using offload::kib;
using offload::mib;
using offload::page_bytes;
using offload::Result;

Result<DirectFile> open_at(const std::string& path, const FileOperations& operations = {}) {
    return DirectFile::open(path, Existence::may_be_made, CachePolicy::direct, operations);
}

// Odd lengths in aligned and unaligned memory: equal bytes, and neighbours untouched.
void keep_every_byte(const std::string& folder) {
    Result<DirectFile> file = open_at(folder + "/data");
    ASSERT_TRUE(file.ok()) << file.error().text();
    ASSERT_FALSE(file->is_buffered()) << file->buffered_reason();
    ASSERT_TRUE(*file->allocate(12 * mib));
    uint64_t seed = 0;
    for (const uint64_t size_bytes : {uint64_t{1}, uint64_t{511}, uint64_t{512}, uint64_t{513},
                                      uint64_t{4095}, uint64_t{4097}, 8 * mib + 717}) {
        PageBuffer source(offload::align_up(size_bytes, page_bytes) + page_bytes);
        PageBuffer target(offload::align_up(size_bytes, page_bytes) + page_bytes);
        for (const uint64_t shift : {0, 1, 512}) {
            source.fill_random(seed++);
            target.fill(0xEE);
            const std::span<std::byte> written = source.span().subspan(shift, size_bytes);
            const std::span<std::byte> read = target.span().subspan(shift, size_bytes);
            ASSERT_TRUE(file->write_exact(8 * kib, written).ok());
            ASSERT_TRUE(file->read_exact(8 * kib, read).ok());
            ASSERT_TRUE(std::ranges::equal(written, read)) << size_bytes << " at " << shift;
            EXPECT_TRUE(is_all(target.span().subspan(shift + size_bytes), 0xEE));
        }
    }
    // The rest of a partly written page keeps its bytes.
    PageBuffer source(page_bytes);
    PageBuffer target(page_bytes);
    source.fill(5);
    ASSERT_TRUE(file->write_exact(0, source.first(4096)).ok());
    source.fill(6);
    ASSERT_TRUE(file->write_exact(0, source.first(100)).ok());
    ASSERT_TRUE(file->read_exact(0, target.first(4096)).ok());
    EXPECT_TRUE(is_all(target.first(100), 6));
    EXPECT_TRUE(is_all(target.span().subspan(100, 3996), 5));
}

TEST(DirectFile, nvme_1_odd_lengths_keep_every_byte) {
    TempFolder folder;
    keep_every_byte(folder.path());
}

TEST(DirectFile, nvme_1_odd_lengths_on_sectors_of_4096_bytes) {
    TempFolder folder;
    const std::string path = folder.make("drive");
    const ImageMount mounted(folder.path() + "/image", path, make_ext4, 4096);
    if (!mounted.ok()) GTEST_SKIP() << "a loop device cannot be mounted here";
    keep_every_byte(path);
}

TEST(DirectFile, nvme_1_a_short_write_is_seen_when_it_happens) {
    TempFolder folder;
    FileOperations operations;
    operations.before_request = [](const Request& request) -> std::optional<Fault> {
        if (request.direction == offload::Direction::read) return {};
        return Fault{.executed_bytes = 0, .result = 0};
    };
    Result<DirectFile> file = open_at(folder.path() + "/data", operations);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->allocate(mib).ok());
    std::vector<std::byte> bytes(513);
    const offload::Status status = file->write_exact(4096, bytes);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().text().find("offset 4096 of " + folder.path()), std::string::npos);
}

TEST(DirectFile, EinvalAtOpenTurnsBufferedAndOtherErrorsDoNot) {
    TempFolder folder;
    int refusal = EINVAL;
    int open_count = 0;
    FileOperations operations;
    operations.open = [&](const std::string& path, int flags, mode_t mode) {
        open_count++;
        if ((flags & O_DIRECT) != 0) return -refusal;
        const int descriptor = ::open(path.c_str(), flags, mode);
        return descriptor < 0 ? -errno : descriptor;
    };
    Result<DirectFile> file = open_at(folder.path() + "/data", operations);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->is_buffered());
    EXPECT_NE(file->buffered_reason().find("at open"), std::string::npos);
    for (const int error_number : {EACCES, ENOENT, EROFS}) {
        refusal = error_number;
        open_count = 0;
        Result<DirectFile> refused = open_at(folder.path() + "/other", operations);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(open_count, 1) << "no second try";
        EXPECT_NE(refused.error().text().find("/other"), std::string::npos);
    }
}

TEST(DirectFile, EinvalAtTheFirstIoTurnsBuffered) {
    TempFolder folder;
    FileOperations operations;
    operations.before_request = [](const Request& request) -> std::optional<Fault> {
        if ((fcntl(request.descriptor, F_GETFL) & O_DIRECT) == 0) return {};
        return Fault{.executed_bytes = 0, .result = -EINVAL};
    };
    Result<DirectFile> file = open_at(folder.path() + "/data", operations);
    ASSERT_TRUE(file.ok());
    EXPECT_FALSE(file->is_buffered());
    ASSERT_TRUE(file->allocate(mib).ok());
    ASSERT_TRUE(file->probe(Probe::write_and_read).ok());
    EXPECT_TRUE(file->is_buffered());
    EXPECT_NE(file->buffered_reason().find("first I/O"), std::string::npos);
}

TEST(DirectFile, AllocatesExactlyAndFollowsNoLink) {
    TempFolder folder;
    Result<DirectFile> file = open_at(folder.path() + "/data");
    ASSERT_TRUE(file.ok());
    for (const uint64_t size_bytes : {mib, 3 * mib, 2 * mib}) {
        ASSERT_TRUE(*file->allocate(size_bytes));
        EXPECT_EQ(*file->size_bytes(), size_bytes);
        struct stat facts {};
        ASSERT_EQ(fstat(file->descriptor(), &facts), 0);
        EXPECT_GE(static_cast<uint64_t>(facts.st_blocks) * 512, size_bytes) << "reserved";
        EXPECT_EQ(facts.st_mode & 0777, 0600u);
    }
    std::filesystem::create_symlink(folder.path() + "/data", folder.path() + "/link");
    Result<DirectFile> link = open_at(folder.path() + "/link");
    ASSERT_FALSE(link.ok());
    EXPECT_NE(link.error().text().find("a link stands"), std::string::npos) << link.error().text();
}

TEST(DirectFile, AFullDriveIsNamed) {
    TempFolder folder;
    FileOperations operations;
    operations.allocate = [](int, uint64_t) { return -ENOSPC; };
    Result<DirectFile> file = open_at(folder.path() + "/data", operations);
    ASSERT_TRUE(file.ok());
    const Result<bool> outcome = file->allocate(5 * mib);
    ASSERT_FALSE(outcome.ok());
    for (const char* part : {"5242880 bytes", "ENOSPC", "free there"}) {
        EXPECT_NE(outcome.error().text().find(part), std::string::npos) << part;
    }
    EXPECT_NE(outcome.error().text().find(folder.path()), std::string::npos);
}

TEST(DirectFile, IsOwnedByOneAndGivenUpAtOnce) {
    TempFolder folder;
    {
        Result<DirectFile> first = open_at(folder.path() + "/data");
        ASSERT_TRUE(first->lock().ok());
        Result<DirectFile> second = open_at(folder.path() + "/data");
        ASSERT_TRUE(second.ok());
        const offload::Status refused = second->lock();
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.error().text().find("in use"), std::string::npos);
    }
    Result<DirectFile> third = open_at(folder.path() + "/data");
    EXPECT_TRUE(third->lock().ok());
    std::filesystem::remove(folder.path() + "/data");
    Result<DirectFile> fourth = open_at(folder.path() + "/data");
    EXPECT_FALSE(third->lock().ok()) << "a file without a name is nobody's store";
    EXPECT_TRUE(fourth->lock().ok());
}

TEST(DirectFile, FlushSeesAFileThatShrankAndAFailedSync) {
    TempFolder folder;
    FileOperations operations;
    int outcome = 0;
    operations.sync_data = [&](int) { return outcome; };
    Result<DirectFile> file = open_at(folder.path() + "/data", operations);
    ASSERT_TRUE(file->allocate(mib).ok());
    EXPECT_TRUE(file->flush().ok());
    outcome = -EIO;
    EXPECT_FALSE(file->flush().ok());
    outcome = 0;
    ASSERT_EQ(truncate((folder.path() + "/data").c_str(), 4096), 0);
    const offload::Status status = file->flush();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().text().find("4096 bytes where 1048576"), std::string::npos);
}

}  // namespace
}  // namespace headrace::nvme
