// DirectFile: one file of a store, opened past the page cache (O_DIRECT) where the file system
// allows, through the cache with its pages dropped after use where it does not. It holds flock: the
// kernel lets go of it only when the last write in flight is done, so a successor cannot be
// overwritten by the late writes of a killed owner (a lock file alone lost 42 of 48 blocks in a
// throttled test). fork() shares the lock: if the parent is killed, a child keeps it until it ends
// or execs. The destructor gives it up at once; the caller has nothing in flight then.
//
// A resource: move-only, closes in its destructor. read_exact and write_exact block and are for
// the small pieces of the map; the blocks of transfers go through a ring or pread (block_queue.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nvme/file_operations.h"
#include "offload/result.h"

namespace headrace::nvme {

enum class Existence : uint8_t { must_exist, may_be_made };
enum class CachePolicy : uint8_t { direct, buffered };
enum class Probe : uint8_t { write_and_read, read };

class DirectFile {
  public:
    // Opens (mode 0600, no link followed). EINVAL with O_DIRECT, an alignment beyond page_bytes, or
    // a file system in memory: opened buffered. Errors: the system's; not a plain file.
    static offload::Result<DirectFile> open(const std::string& path, Existence existence,
                                            CachePolicy policy, const FileOperations& operations);
    DirectFile(DirectFile&& other) noexcept;
    DirectFile& operator=(DirectFile&&) = delete;
    ~DirectFile();

    // Becomes the owner, or says that somebody else is. Under the lock the file must still have its
    // one name: whoever removes a store unlinks its files while holding it.
    offload::Status lock();

    // In a forked child, which shares the lock: gives up the child's share.
    void let_go_in_child();

    const std::string& path() const { return path_; }
    int descriptor() const { return descriptor_; }
    bool is_buffered() const { return policy_ == CachePolicy::buffered; }
    const FileOperations& operations() const { return operations_; }

    // What the first I/O said, for people; empty while O_DIRECT works.
    const std::string& buffered_reason() const { return buffered_reason_; }

    offload::Result<uint64_t> size_bytes() const;

    // Nothing is left in it, durably.
    offload::Status make_empty();

    // Makes the file exactly size_bytes long with its space reserved; longer ones are cut. Returns
    // whether the space is reserved: false on file systems that have no fallocate.
    offload::Result<bool> allocate(uint64_t size_bytes);

    // Writes a page of zeros at the beginning and reads it back, or only reads where bytes are to
    // be kept; EINVAL turns this file to buffered. Call once, before anything else is in flight;
    // the file is at least a page long (CHECK).
    offload::Status probe(Probe kind);

    // Whole or an Error. offset_bytes is a multiple of page_bytes (CHECK); the memory may be of any
    // size and alignment: what O_DIRECT cannot take goes through a page of this call's own, and the
    // rest of a partly written page keeps its bytes. The file must reach to the end of that page.
    offload::Status read_exact(uint64_t offset_bytes, std::span<std::byte> memory) const;
    offload::Status write_exact(uint64_t offset_bytes, std::span<const std::byte> memory) const;

    // fdatasync, after a look at the size: a file that shrank under us is an Error.
    offload::Status flush() const;

    // A block was read or written: if buffered, its pages are written back and dropped, which
    // bounds what the store holds of the page cache by its blocks in flight. May block on I/O.
    offload::Status drop_cache(offload::Direction direction, uint64_t offset_bytes,
                               uint64_t size_bytes) const;

  private:
    DirectFile(std::string path, int descriptor, CachePolicy policy, FileOperations operations);
    offload::Status move_all(const Request& request) const;
    void turn_buffered(const std::string& reason);

    std::string path_;
    int descriptor_ = -1;
    CachePolicy policy_;
    std::string buffered_reason_;
    uint64_t allocated_bytes_ = 0;
    FileOperations operations_;
};

}  // namespace headrace::nvme
