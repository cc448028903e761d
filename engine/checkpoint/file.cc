#include "engine/checkpoint/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// Linux transfers at most this much at once; asking for less keeps the arithmetic simple.
constexpr uint64_t transfer_bytes_max = uint64_t{1} << 30;

Error open_error(const std::string& path, int error_number) {
    struct stat link = {};
    if (error_number == ENOENT && lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
        return Error{ErrorCode::bad_data,
                     fmt::format("opening {}: it is a link to a file that is missing, as half a "
                                 "download leaves it; download the model again",
                                 path),
                     ""};
    }
    return system_error(fmt::format("opening {} to read it", path), error_number);
}

}  // namespace

Descriptor::~Descriptor() {
    if (number_ >= 0) ::close(number_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

int Descriptor::close() {
    const int number = std::exchange(number_, -1);
    return number < 0 ? 0 : ::close(number);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

LockedFolder lock_folder(const std::string& path) {
    LockedFolder locked{.descriptor = Descriptor(
                            ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))};
    if (locked.descriptor.number() < 0 ||
        ::flock(locked.descriptor.number(), LOCK_EX | LOCK_NB) != 0) {
        locked.error = errno;
    }
    return locked;
}

InputFile::InputFile(Descriptor descriptor, std::string path, uint64_t size_bytes)
    : descriptor_(std::move(descriptor)), path_(std::move(path)), size_bytes_(size_bytes) {
    CHECK_GE(descriptor_.number(), 0);
}

Result<InputFile> InputFile::open(const std::string& path) {
    CHECK(!path.empty());
    // O_NONBLOCK: a named pipe must be refused below, not waited for.
    Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (descriptor.number() < 0) return open_error(path, errno);
    struct stat facts = {};
    if (fstat(descriptor.number(), &facts) != 0) {
        return system_error(fmt::format("asking for the size of {}", path), errno);
    }
    if (!S_ISREG(facts.st_mode)) {
        return Error{ErrorCode::bad_data,
                     fmt::format("opening {}: it is a folder or a device, not a file", path), ""};
    }
    CHECK_GE(facts.st_size, 0);
    return InputFile(std::move(descriptor), path, static_cast<uint64_t>(facts.st_size));
}

Status InputFile::read(uint64_t offset_bytes, std::span<std::byte> target) const {
    CHECK_LE(offset_bytes, size_bytes_);
    CHECK_LE(target.size(), size_bytes_ - offset_bytes);
    uint64_t done_bytes = 0;
    while (done_bytes < target.size()) {
        const uint64_t wanted_bytes = std::min(target.size() - done_bytes, transfer_bytes_max);
        const ssize_t got = ::pread(descriptor_.number(), target.data() + done_bytes, wanted_bytes,
                                    static_cast<off_t>(offset_bytes + done_bytes));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return system_error(fmt::format("reading {} bytes at offset {} of {}", wanted_bytes,
                                            offset_bytes + done_bytes, path_),
                                errno);
        }
        if (got == 0) {
            return Error{ErrorCode::bad_data,
                         fmt::format("reading {} bytes at offset {} of {}: the file had {} bytes "
                                     "when it was opened and ends earlier now; something else is "
                                     "writing to it",
                                     wanted_bytes, offset_bytes + done_bytes, path_, size_bytes_),
                         ""};
        }
        done_bytes += static_cast<uint64_t>(got);
    }
    CHECK_EQ(done_bytes, target.size());
    return {};
}

OutputFile::OutputFile(Descriptor descriptor, std::string path, uint64_t size_bytes)
    : descriptor_(std::move(descriptor)), path_(std::move(path)), size_bytes_(size_bytes) {
    CHECK_GE(descriptor_.number(), 0);
}

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t size_bytes) {
    CHECK(!path.empty());
    Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor.number() < 0) {
        return system_error(fmt::format("creating {}", path), errno);
    }
    const auto size = static_cast<off_t>(size_bytes);
    CHECK_GE(size, 0);
    int taken = size == 0 ? 0 : ::fallocate(descriptor.number(), 0, 0, size);
    if (taken != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
        taken = ::ftruncate(descriptor.number(), size);  // no blocks are taken, only the size
    }
    if (taken != 0) {
        const int error_number = errno;
        ::unlink(path.c_str());
        return system_error(fmt::format("taking {} on the drive for {}; free some space or choose "
                                        "another folder",
                                        offload::format_bytes(size_bytes), path),
                            error_number);
    }
    return OutputFile(std::move(descriptor), path, size_bytes);
}

Status OutputFile::write(uint64_t offset_bytes, std::span<const std::byte> source) const {
    CHECK_LE(offset_bytes, size_bytes_);
    CHECK_LE(source.size(), size_bytes_ - offset_bytes);
    uint64_t done_bytes = 0;
    while (done_bytes < source.size()) {
        const uint64_t wanted_bytes = std::min(source.size() - done_bytes, transfer_bytes_max);
        const ssize_t put = ::pwrite(descriptor_.number(), source.data() + done_bytes, wanted_bytes,
                                     static_cast<off_t>(offset_bytes + done_bytes));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            return system_error(fmt::format("writing {} bytes at offset {} of {}", wanted_bytes,
                                            offset_bytes + done_bytes, path_),
                                put < 0 ? errno : EIO);
        }
        done_bytes += static_cast<uint64_t>(put);
    }
    CHECK_EQ(done_bytes, source.size());
    return {};
}

Status OutputFile::sync() const {
    if (::fsync(descriptor_.number()) != 0) {
        return system_error(fmt::format("making {} durable", path_), errno);
    }
    return {};
}

Result<std::string> read_text(const std::string& path, uint64_t size_bytes_max) {
    CHECK_GT(size_bytes_max, 0u);
    Result<InputFile> file = InputFile::open(path);
    if (!file.ok()) return file.error();
    if (file->size_bytes() > size_bytes_max) {
        return Error{ErrorCode::bad_data,
                     fmt::format("reading {}: it has {}, and no such file should have more than {}",
                                 path, offload::format_bytes(file->size_bytes()),
                                 offload::format_bytes(size_bytes_max)),
                     ""};
    }
    std::string text(file->size_bytes(), '\0');
    const Status status = file->read(0, std::as_writable_bytes(std::span(text)));
    if (!status.ok()) return status.error();
    return text;
}

namespace {

Error is_a_folder(const std::string& path) {
    return Error{ErrorCode::usage, fmt::format("cannot write '{}': it is a folder", path),
                 "name a file in it"};
}

// What a rename would replace by something else than it is: a device, a pipe, a link.
bool is_written_in_place(const std::filesystem::file_status& facts) {
    return exists(facts) && facts.type() != std::filesystem::file_type::regular;
}

// With O_CREAT among the flags the file is a new one, and is gone again where it fails.
Status write_all(const std::string& path, std::string_view text, int flags) {
    const auto failure = [&](int error_number) {
        return system_error(fmt::format("writing {} bytes to '{}'", text.size(), path),
                            error_number);
    };
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666));
    if (file.number() < 0) return failure(errno);
    int error_number = 0;
    for (std::string_view rest = text; !rest.empty() && error_number == 0;) {
        const ssize_t put = ::write(file.number(), rest.data(),
                                    std::min<uint64_t>(rest.size(), transfer_bytes_max));
        if (put > 0) rest.remove_prefix(static_cast<size_t>(put));
        if (put == 0) error_number = EIO;
        if (put < 0 && errno != EINTR) error_number = errno;
    }
    // Some file systems tell of a full drive only now.
    if (file.close() != 0 && error_number == 0) error_number = errno;
    if (error_number == 0) return {};
    if ((flags & O_CREAT) != 0) ::unlink(path.c_str());
    return failure(error_number);
}

}  // namespace

Status save_text(const std::string& path, std::string_view text, Existing existing) {
    CHECK(!path.empty());
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) return is_a_folder(path);
    const auto facts = std::filesystem::symlink_status(path, unknown);
    if (is_written_in_place(facts)) return write_all(path, text, O_TRUNC);
    if (existing == Existing::refused) {
        if (!exists(facts)) return write_all(path, text, O_CREAT | O_EXCL);
        return Error{ErrorCode::usage, fmt::format("the file '{}' is there already", path), ""};
    }
    const std::string unfinished = path + ".tmp";
    if (Status status = write_all(unfinished, text, O_CREAT | O_TRUNC); !status) return status;
    if (std::rename(unfinished.c_str(), path.c_str()) == 0) return {};
    const int error_number = errno;
    ::unlink(unfinished.c_str());
    return system_error(fmt::format("writing '{}'", path), error_number);
}

Status check_can_write(const std::string& path) {
    CHECK(!path.empty());
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) return is_a_folder(path);
    const auto facts = std::filesystem::symlink_status(path, unknown);
    std::string target = path;
    if (!is_written_in_place(facts)) {
        target = std::filesystem::absolute(path, unknown).parent_path().string();
    }
    if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) == 0) return {};
    return system_error(fmt::format("cannot write '{}'", path), errno);
}

std::filesystem::path nearest_existing(const std::string& folder, std::error_code& failure) {
    namespace fs = std::filesystem;
    CHECK(!folder.empty());
    fs::path above = fs::absolute(folder, failure);
    while (!failure && !fs::exists(above, failure) && above.has_relative_path()) {
        above = above.parent_path();
    }
    return above;
}

Status sync_folder(const std::string& folder) {
    CHECK(!folder.empty());
    const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (descriptor.number() < 0 || ::fsync(descriptor.number()) != 0) {
        return system_error(fmt::format("making the names in {} durable", folder), errno);
    }
    return {};
}

Error system_error(std::string what, int error_number) {
    CHECK(!what.empty());
    CHECK_GT(error_number, 0);
    return Error{ErrorCode::failed, std::move(what), std::generic_category().message(error_number)};
}

}  // namespace headrace::engine
