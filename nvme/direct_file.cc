#include "nvme/direct_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "nvme/block.h"
#include "nvme/io_error.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::Direction;
using offload::Error;
using offload::ErrorCode;
using offload::page_bytes;
using offload::Result;
using offload::Status;

namespace {

// O_DIRECT buffers of our own: the largest piece read_exact and write_exact move at a time.
constexpr uint64_t bounce_bytes = 16 * page_bytes;

struct alignas(page_bytes) Bounce {
    std::byte bytes[bounce_bytes];
};

// Why O_DIRECT, though it opened, is not what happens or cannot be fed with pages; empty if it can.
std::string why_not_direct(int descriptor) {
    struct statfs facts {};
    if (fstatfs(descriptor, &facts) == 0 &&
        (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC)) {
        return "the file system is memory (tmpfs): what is stored there takes RAM";
    }
    struct statx alignment {};
    // File systems that say nothing (btrfs, overlay) are assumed to be content with pages: probe().
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &alignment) != 0) return "";
    if ((alignment.stx_mask & STATX_DIOALIGN) == 0) return "";
    const uint32_t wanted = std::max(alignment.stx_dio_mem_align, alignment.stx_dio_offset_align);
    if (wanted == 0) return "the file system does not offer O_DIRECT for this file";
    if (wanted <= page_bytes) return "";
    return fmt::format("the file system wants O_DIRECT aligned to {} bytes, more than a page",
                       wanted);
}

Status check_plain(const std::string& path, int descriptor) {
    struct stat facts {};
    if (fstat(descriptor, &facts) != 0) return io_error("cannot stat " + path, path, errno);
    if (!S_ISREG(facts.st_mode)) {
        return Error{ErrorCode::failed, "cannot use " + path,
                     "it is not a plain file; remove it or choose another path"};
    }
    if (facts.st_nlink != 1) {
        return Error{ErrorCode::failed, "cannot use " + path,
                     fmt::format("it has {} names instead of one: it was removed while being "
                                 "opened, or is linked from elsewhere; try again",
                                 facts.st_nlink)};
    }
    return {};
}

}  // namespace

DirectFile::DirectFile(std::string path, int descriptor, CachePolicy policy,
                       FileOperations operations)
    : path_(std::move(path)),
      descriptor_(descriptor),
      policy_(policy),
      operations_(std::move(operations)) {
    CHECK_GE(descriptor_, 0);
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      policy_(other.policy_),
      buffered_reason_(std::move(other.buffered_reason_)),
      allocated_bytes_(other.allocated_bytes_),
      operations_(std::move(other.operations_)) {}

DirectFile::~DirectFile() {
    if (descriptor_ < 0) return;
    // Nothing is in flight any more, but a closed ring and forked children still hold the file for
    // a while: the lock must not wait for them. (The kernel's own release at a kill does wait.)
    flock(descriptor_, LOCK_UN);
    close(descriptor_);
}

Result<DirectFile> DirectFile::open(const std::string& path, Existence existence,
                                    CachePolicy policy, const FileOperations& operations) {
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    if (existence == Existence::may_be_made) flags |= O_CREAT;
    std::string reason;
    int descriptor = -EINVAL;
    if (policy == CachePolicy::direct) {
        descriptor = open_file(operations, path, flags | O_DIRECT, 0600);
        if (descriptor == -EINVAL) reason = "the file system refuses O_DIRECT at open";
    }
    if (descriptor == -EINVAL) descriptor = open_file(operations, path, flags, 0600);
    if (descriptor < 0) return io_error("cannot open " + path, path, -descriptor);

    DirectFile file(path, descriptor, policy, operations);
    if (Status plain = check_plain(path, descriptor); !plain) return plain.error();
    if (policy == CachePolicy::direct && reason.empty()) reason = why_not_direct(descriptor);
    if (!reason.empty()) file.turn_buffered(reason);
    return file;
}

Status DirectFile::lock() {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return io_error("cannot lock " + path_, path_, errno);
        return Error{ErrorCode::failed, "cannot lock " + path_,
                     "it is in use by another run, or the last writes of a killed one are still "
                     "on their way to the drive"};
    }
    return check_plain(path_, descriptor_);
}

void DirectFile::let_go_in_child() {
    CHECK_EQ(close(descriptor_), 0);  // without LOCK_UN: the lock is the parent's
}

void DirectFile::turn_buffered(const std::string& reason) {
    CHECK(!reason.empty());
    const int flags = fcntl(descriptor_, F_GETFL);
    CHECK_GE(flags, 0);
    CHECK_EQ(fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT), 0);
    // No read-ahead: what it brings in behind our backs nobody would drop.
    static_cast<void>(posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM));
    policy_ = CachePolicy::buffered;
    buffered_reason_ = reason;
}

Result<uint64_t> DirectFile::size_bytes() const {
    struct stat facts {};
    if (fstat(descriptor_, &facts) != 0) return io_error("cannot stat " + path_, path_, errno);
    return static_cast<uint64_t>(facts.st_size);
}

Status DirectFile::make_empty() {
    const int outcome = truncate_file(operations_, descriptor_, 0);
    if (outcome < 0) return io_error("cannot empty " + path_, path_, -outcome);
    allocated_bytes_ = 0;
    return flush();
}

Result<bool> DirectFile::allocate(uint64_t size_bytes) {
    CHECK_GT(size_bytes, 0u);
    const std::string attempted = fmt::format("cannot reserve {} ({} bytes) for {}",
                                              offload::format_bytes(size_bytes), size_bytes, path_);
    const Result<uint64_t> before = this->size_bytes();
    if (!before) return before.error();
    if (*before > size_bytes) {
        const int cut = truncate_file(operations_, descriptor_, size_bytes);
        if (cut < 0) return io_error(attempted, path_, -cut);
    }
    int outcome = -EINTR;
    for (int retry = 0; outcome == -EINTR && retry < retries_in_a_row_max; retry++) {
        outcome = allocate_file(operations_, descriptor_, size_bytes);
    }
    const bool is_reserved = outcome != -EOPNOTSUPP && outcome != -ENOSYS;
    if (is_reserved && outcome < 0) return io_error(attempted, path_, -outcome);
    if (!is_reserved) {
        const int made = truncate_file(operations_, descriptor_, size_bytes);
        if (made < 0) return io_error(attempted, path_, -made);
    }
    allocated_bytes_ = size_bytes;
    const Result<uint64_t> after = this->size_bytes();
    if (!after) return after.error();
    if (*after != size_bytes) {
        return Error{ErrorCode::failed, attempted,
                     fmt::format("the file has {} bytes afterwards", *after)};
    }
    return is_reserved;
}

Status DirectFile::probe(Probe kind) {
    CHECK_GE(allocated_bytes_, page_bytes);
    Bounce bounce{};
    const std::span<std::byte> page(bounce.bytes, page_bytes);
    for (const Direction direction : {Direction::write, Direction::read}) {
        if (direction == Direction::write && kind == Probe::read) continue;
        const Request request{
            .direction = direction, .descriptor = descriptor_, .offset_bytes = 0, .memory = page};
        const int64_t result = execute(operations_, request);
        if (result == -EINVAL && !is_buffered()) {
            turn_buffered("the file system takes O_DIRECT at open and refuses it at the first I/O");
        }
        // Whatever it was, the checked way decides: it retries, goes on, or names the error.
        if (Status status = move_all(request); !status) return status;
    }
    return {};
}

Status DirectFile::move_all(const Request& request) const {
    Block block{.transfer = nullptr,
                .direction = request.direction,
                .offset_bytes = request.offset_bytes,
                .memory = request.memory};
    while (true) {
        const int64_t result = execute(operations_, {.direction = block.direction,
                                                     .descriptor = descriptor_,
                                                     .offset_bytes = block.offset_bytes,
                                                     .memory = block.memory});
        const Result<Progress> progress = advance(block, result, path_);
        if (!progress) return progress.error();
        if (*progress == Progress::finished) return {};
    }
}

Status DirectFile::read_exact(uint64_t offset_bytes, std::span<std::byte> memory) const {
    CHECK_EQ(offset_bytes % page_bytes, 0u);
    Bounce bounce;
    while (!memory.empty()) {
        const uint64_t piece_bytes = std::min<uint64_t>(memory.size(), bounce_bytes);
        const std::span<std::byte> pages(bounce.bytes, offload::align_up(piece_bytes, page_bytes));
        Status status = move_all({.direction = Direction::read,
                                  .descriptor = descriptor_,
                                  .offset_bytes = offset_bytes,
                                  .memory = pages});
        if (!status) return status;
        std::memcpy(memory.data(), bounce.bytes, piece_bytes);
        memory = memory.subspan(piece_bytes);
        offset_bytes += piece_bytes;
    }
    return {};
}

Status DirectFile::write_exact(uint64_t offset_bytes, std::span<const std::byte> memory) const {
    CHECK_EQ(offset_bytes % page_bytes, 0u);
    Bounce bounce;
    while (!memory.empty()) {
        const uint64_t piece_bytes = std::min<uint64_t>(memory.size(), bounce_bytes);
        const uint64_t last_page = (piece_bytes - 1) / page_bytes * page_bytes;
        if (piece_bytes % page_bytes != 0) {
            Status status = move_all({.direction = Direction::read,
                                      .descriptor = descriptor_,
                                      .offset_bytes = offset_bytes + last_page,
                                      .memory = {bounce.bytes + last_page, page_bytes}});
            if (!status) return status;
        }
        std::memcpy(bounce.bytes, memory.data(), piece_bytes);
        Status status = move_all({.direction = Direction::write,
                                  .descriptor = descriptor_,
                                  .offset_bytes = offset_bytes,
                                  .memory = {bounce.bytes, last_page + page_bytes}});
        if (!status) return status;
        memory = memory.subspan(piece_bytes);
        offset_bytes += piece_bytes;
    }
    return {};
}

Status DirectFile::flush() const {
    const Result<uint64_t> size = size_bytes();
    if (!size) return wrap(size.error(), "cannot make " + path_ + " durable");
    if (*size < allocated_bytes_) {
        return Error{ErrorCode::failed, "cannot make " + path_ + " durable",
                     fmt::format("it has {} bytes where {} were reserved: something cut it while "
                                 "it was in use",
                                 *size, allocated_bytes_)};
    }
    const int outcome = sync_data(operations_, descriptor_);
    if (outcome < 0) return io_error("cannot make " + path_ + " durable", path_, -outcome);
    return {};
}

Status DirectFile::drop_cache(Direction direction, uint64_t offset_bytes,
                              uint64_t size_bytes) const {
    if (!is_buffered()) return {};
    if (direction == Direction::write) {
        // The kernel tells an error of writing back once, and the page it drops next is the only
        // copy: it must be heard here. What a file system does not know of is no error.
        const int outcome = sync_range(operations_, descriptor_, offset_bytes, size_bytes);
        const bool is_lost = outcome == -EIO || outcome == -ENOSPC || outcome == -EDQUOT;
        if (is_lost) {
            return io_error(fmt::format("cannot write back {} bytes at offset {} of {}", size_bytes,
                                        offset_bytes, path_),
                            path_, -outcome);
        }
    }
    static_cast<void>(drop_pages(operations_, descriptor_, offset_bytes, size_bytes));
    return {};
}

}  // namespace headrace::nvme
