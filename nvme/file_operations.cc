#include "nvme/file_operations.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "offload/check.h"

namespace headrace::nvme {

namespace {

int64_t execute_now(const Request& request) {
    const auto offset = static_cast<off_t>(request.offset_bytes);
    const ssize_t count =
        request.direction == offload::Direction::read
            ? pread(request.descriptor, request.memory.data(), request.memory.size(), offset)
            : pwrite(request.descriptor, request.memory.data(), request.memory.size(), offset);
    return count < 0 ? -errno : count;
}

}  // namespace

int open_file(const FileOperations& operations, const std::string& path, int flags, mode_t mode) {
    if (operations.open) return operations.open(path, flags, mode);
    const int descriptor = open(path.c_str(), flags, mode);
    return descriptor < 0 ? -errno : descriptor;
}

int allocate_file(const FileOperations& operations, int descriptor, uint64_t size_bytes) {
    if (operations.allocate) return operations.allocate(descriptor, size_bytes);
    return fallocate(descriptor, 0, 0, static_cast<off_t>(size_bytes)) < 0 ? -errno : 0;
}

int truncate_file(const FileOperations& operations, int descriptor, uint64_t size_bytes) {
    if (operations.truncate) return operations.truncate(descriptor, size_bytes);
    return ftruncate(descriptor, static_cast<off_t>(size_bytes)) < 0 ? -errno : 0;
}

int sync_data(const FileOperations& operations, int descriptor) {
    if (operations.sync_data) return operations.sync_data(descriptor);
    return fdatasync(descriptor) < 0 ? -errno : 0;
}

int sync_range(const FileOperations& operations, int descriptor, uint64_t offset_bytes,
               uint64_t size_bytes) {
    if (operations.sync_range) return operations.sync_range(descriptor, offset_bytes, size_bytes);
    constexpr unsigned int whole =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const int outcome = sync_file_range(descriptor, static_cast<off_t>(offset_bytes),
                                        static_cast<off_t>(size_bytes), whole);
    return outcome < 0 ? -errno : 0;
}

int drop_pages(const FileOperations& operations, int descriptor, uint64_t offset_bytes,
               uint64_t size_bytes) {
    if (operations.drop_pages) return operations.drop_pages(descriptor, offset_bytes, size_bytes);
    return -posix_fadvise(descriptor, static_cast<off_t>(offset_bytes),
                          static_cast<off_t>(size_bytes), POSIX_FADV_DONTNEED);
}

int make_folder(const FileOperations& operations, const std::string& folder) {
    if (operations.make_folder) return operations.make_folder(folder);
    return mkdir(folder.c_str(), 0700) < 0 ? -errno : 0;
}

int remove_file(const FileOperations& operations, const std::string& file) {
    if (operations.remove_file) return operations.remove_file(file);
    return unlink(file.c_str()) < 0 ? -errno : 0;
}

int remove_folder(const FileOperations& operations, const std::string& folder) {
    if (operations.remove_folder) return operations.remove_folder(folder);
    return rmdir(folder.c_str()) < 0 ? -errno : 0;
}

int rename_entry(const FileOperations& operations, const std::string& source,
                 const std::string& target) {
    if (operations.rename) return operations.rename(source, target);
    return std::rename(source.c_str(), target.c_str()) < 0 ? -errno : 0;
}

int sync_entries(const FileOperations& operations, const std::string& folder) {
    if (operations.sync_folder) return operations.sync_folder(folder);
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return -errno;
    const int outcome = fsync(descriptor) == 0 || errno == EINVAL ? 0 : -errno;
    close(descriptor);
    return outcome;
}

int64_t execute(const FileOperations& operations, const Request& request) {
    CHECK_GE(request.descriptor, 0);
    if (!operations.before_request) return execute_now(request);
    const std::optional<Fault> fault = operations.before_request(request);
    if (!fault) return execute_now(request);
    while (fault->is_lost) pause();
    CHECK_LE(fault->executed_bytes, request.memory.size());
    if (fault->executed_bytes > 0) {
        Request part = request;
        part.memory = request.memory.first(fault->executed_bytes);
        const int64_t moved = execute_now(part);
        CHECK_EQ(moved, static_cast<int64_t>(fault->executed_bytes));
    }
    return fault->result;
}

}  // namespace headrace::nvme
