#include "nvme/io_error.h"

#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

namespace {

std::string remedy_of(int error_number, const std::string& path) {
    switch (error_number) {
        case ENOSPC:
        case EDQUOT:
            return fmt::format("{} free there; free space or choose another path",
                               offload::format_bytes(free_bytes_at(path)));
        case EACCES:
        case EPERM:
            return fmt::format(
                "as user {}; choose a folder this user may write, or change its "
                "owner",
                geteuid());
        case EROFS: return "the file system is read-only, or went so after an error: see dmesg";
        case ENOENT: return "create the folder, or mount the drive, first";
        case ENOTDIR: return "a part of the path is a file; name a folder";
        case ELOOP: return "a link stands where the store's own file or folder belongs; remove it";
        case EIO:
            return "the drive or its link fails: see dmesg and smartctl, then use another path";
        case EFBIG: return "a file size limit is in force: raise ulimit -f";
        case EMFILE:
        case ENFILE: return "too many open files: raise ulimit -n";
        case ENOMEM: return "the kernel could not get or lock memory: see ulimit -l";
        default: return "";
    }
}

}  // namespace

std::string describe_errno(int error_number) {
    CHECK_GT(error_number, 0);
    const char* name = strerrorname_np(error_number);
    const char* text = strerrordesc_np(error_number);
    return fmt::format("{} ({})", name ? name : std::to_string(error_number),
                       text ? text : "unknown");
}

offload::Error io_error(const std::string& attempted, const std::string& path, int error_number) {
    CHECK(!attempted.empty());
    const std::string remedy = remedy_of(error_number, path);
    std::string cause = describe_errno(error_number);
    if (!remedy.empty()) cause += "; " + remedy;
    return offload::Error{.code = offload::ErrorCode::failed, .what = attempted, .cause = cause};
}

uint64_t free_bytes_at(const std::string& path) {
    struct statvfs facts {};
    if (statvfs(path.c_str(), &facts) != 0) return 0;
    return static_cast<uint64_t>(facts.f_bavail) * facts.f_frsize;
}

}  // namespace headrace::nvme
