// FileOperations: the system calls of this folder whose faults must be provable by test, as values
// passed down. Empty members mean the real call; a test fills one in and returns what a bad day
// would: EINVAL from open, ENOSPC from fallocate, short counts and EINTR from a request. The same
// hook `before_request` serves the ring and the thread engine, so both meet the same faults.
//
// All return >= 0 or a negative errno. Called from any thread of the store.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "offload/store.h"

namespace headrace::nvme {

// One read or write of a file, as it is about to be issued.
struct Request {
    offload::Direction direction = offload::Direction::read;
    int descriptor = -1;
    uint64_t offset_bytes = 0;
    std::span<std::byte> memory;
};

// What becomes of a request instead: only its first executed_bytes are moved (a multiple of
// page_bytes), and `result` is reported: bytes, or a negative errno. Or no completion ever comes
// (is_lost): with threads the call never returns, so only _exit ends such a process. With
// ends_submission and nothing executed, the ring's request is one that the kernel cannot take, and
// it takes none of those prepared behind it: a submission that is partly taken.
struct Fault {
    uint64_t executed_bytes = 0;
    int64_t result = 0;
    bool is_lost = false;
    bool ends_submission = false;
};

struct FileOperations {
    std::function<int(const std::string& path, int flags, mode_t mode)> open;
    std::function<int(int descriptor, uint64_t size_bytes)> allocate;
    std::function<int(int descriptor, uint64_t size_bytes)> truncate;
    std::function<int(int descriptor)> sync_data;
    std::function<int(int descriptor, uint64_t offset_bytes, uint64_t size_bytes)> sync_range;
    std::function<int(int descriptor, uint64_t offset_bytes, uint64_t size_bytes)> drop_pages;
    std::function<std::optional<Fault>(const Request&)> before_request;
    std::function<int()> before_submit;  // < 0: the submission of the ring fails with it
    std::function<int(const std::string& folder)> make_folder;
    std::function<int(const std::string& file)> remove_file;
    std::function<int(const std::string& folder)> remove_folder;
    std::function<int(const std::string& source, const std::string& target)> rename;
    std::function<int(const std::string& folder)> sync_folder;
};

// The call, or what stands in for it.
int open_file(const FileOperations& operations, const std::string& path, int flags, mode_t mode);
int allocate_file(const FileOperations& operations, int descriptor, uint64_t size_bytes);
int truncate_file(const FileOperations& operations, int descriptor, uint64_t size_bytes);
int sync_data(const FileOperations& operations, int descriptor);
// Writes the pages of a range back and waits for it.
int sync_range(const FileOperations& operations, int descriptor, uint64_t offset_bytes,
               uint64_t size_bytes);
// Drops the clean pages of a range from the page cache: what is read next comes from the drive.
int drop_pages(const FileOperations& operations, int descriptor, uint64_t offset_bytes,
               uint64_t size_bytes);

// Entries of folders: mkdir (mode 0700), unlink, rmdir, rename, fsync of a folder, where a file
// system that cannot do it counts as one that need not.
int make_folder(const FileOperations& operations, const std::string& folder);
int remove_file(const FileOperations& operations, const std::string& file);
int remove_folder(const FileOperations& operations, const std::string& folder);
int rename_entry(const FileOperations& operations, const std::string& source,
                 const std::string& target);
int sync_entries(const FileOperations& operations, const std::string& folder);

// pread or pwrite, once: the count, which may be short, or a negative errno.
int64_t execute(const FileOperations& operations, const Request& request);

}  // namespace headrace::nvme
