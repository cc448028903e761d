#include "nvme/run_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "nvme/io_error.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::page_bytes;
using offload::Result;
using offload::Status;

namespace {

// Folder, map and data.
constexpr uint64_t inodes_per_path = 3;

// In steps of 20 ms: for whoever only looks, and 2 s for the last writes of a killed run.
constexpr int lock_attempts_max = 3;
constexpr int dead_lock_attempts_max = 100;

// Bytes that a file holds on its drive; 0 for what is not there.
uint64_t stored_bytes(const std::string& file) {
    struct stat facts {};
    if (lstat(file.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return 0;
    return static_cast<uint64_t>(facts.st_blocks) * 512;
}

// What a store of the run takes on one path.
uint64_t stored_bytes_of(const std::string& path, const std::string& run_name, Role role) {
    const std::string folder = run_folder_of(path, run_name, role);
    return stored_bytes(folder + "/data") + stored_bytes(folder + "/map");
}

Status check_folder(const std::string& path, struct stat& facts) {
    if (stat(path.c_str(), &facts) != 0) {
        return io_error("cannot use the NVMe path " + path, path, errno);
    }
    if (!S_ISDIR(facts.st_mode)) {
        return Error{ErrorCode::failed, "cannot use the NVMe path " + path,
                     "it is a file; name a folder on the drive"};
    }
    if (faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
        return io_error("cannot write to the NVMe path " + path, path, errno);
    }
    return {};
}

Status check_limits(const PathNeed& need) {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < need.size_bytes) {
        return Error{
            ErrorCode::does_not_fit,
            fmt::format("cannot make a file of {} bytes in {}", need.size_bytes, need.path),
            fmt::format("files are limited to {} bytes: raise ulimit -f", limit.rlim_cur)};
    }
    struct statvfs facts {};
    if (statvfs(need.path.c_str(), &facts) != 0) {
        return io_error("cannot ask for the free space of " + need.path, need.path, errno);
    }
    // File systems without a table of inodes say 0.
    if (facts.f_files > 0 && facts.f_favail < inodes_per_path) {
        return Error{ErrorCode::does_not_fit, "cannot make a store in " + need.path,
                     fmt::format("its file system has {} free inodes and {} are needed: remove "
                                 "files or choose another path",
                                 facts.f_favail, inodes_per_path)};
    }
    return {};
}

// What is asked of one file system, by all paths on it.
struct Demand {
    std::string paths;
    uint64_t size_bytes = 0;
    uint64_t free_bytes = 0;
};

// Nobody known if there is no owner page.
Owner read_owner(const std::string& map_path) {
    const int descriptor = open(map_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0) return {};
    Page page{};
    const ssize_t count = pread(descriptor, page.data(), page.size(), owner_page_offset);
    close(descriptor);
    return count == static_cast<ssize_t>(page.size()) ? owner_of(page) : Owner{};
}

// A process that has ended and that its parent has not asked about yet (proc_pid_stat(5)).
bool is_zombie(uint32_t pid) {
    std::ifstream stream(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(stream, text);
    const size_t name_end = text.rfind(") ");  // the name may hold anything
    if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
    const char state = text[name_end + 2];
    return state == 'Z' || state == 'X';
}

// True if the store's owner ran on this boot of this machine and has ended.
bool has_ended(const Owner& owner) {
    if (owner.pid == 0 || this_owner().boot_id != owner.boot_id) return false;
    const bool is_gone = kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH;
    return is_gone || is_zombie(owner.pid);
}

// Becomes the owner. The last writes of a run that was killed a moment ago are waited for, and so
// is whoever only looks whether the store is held.
Status take_lock(DirectFile& file, const std::string& folder) {
    for (int attempt = 0; !file.lock(); attempt++) {
        const Owner owner = read_owner(folder + "/map");
        const bool is_dead = has_ended(owner);
        if (attempt < (is_dead ? dead_lock_attempts_max : lock_attempts_max)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            continue;
        }
        Error error{ErrorCode::failed, "the store " + folder + " is in use",
                    "its owner is not known: stop that run, or choose another run name"};
        if (owner.pid != 0) {
            error.cause = fmt::format(
                "process {} on host {} {}", owner.pid, owner.host,
                is_dead ? "has ended, but its last writes are still on their way to the "
                          "drive, or a child of it holds the files: try again in a minute"
                        : "holds it: stop that run, or choose another run name");
        }
        return error;
    }
    return {};
}

Error not_usable(const std::string& folder, FirstPage kind) {
    CHECK(kind == FirstPage::newer || kind == FirstPage::foreign);
    return Error{
        ErrorCode::bad_data, "cannot use or replace " + folder,
        kind == FirstPage::newer
            ? fmt::format("a newer version made it (this one knows format {}): remove it with that "
                          "one or choose another run name",
                          format_version)
            : "its map does not begin as a store's: it is damaged or not ours; remove the folder "
              "or choose another run name"};
}

Error damaged(const std::string& folder, const std::string& cause) {
    return Error{ErrorCode::bad_data, "cannot read the store " + folder,
                 cause + "; restore the folder, or remove it and begin anew"};
}

Status check_is_ours(const DirectFile& map, const std::string& folder) {
    const Result<uint64_t> size = map.size_bytes();
    if (!size) return size.error();
    if (*size == 0) return {};
    Page page{};
    if (*size < page.size()) {
        return Error{ErrorCode::bad_data, "cannot replace " + folder,
                     "its map is shorter than a page: no store made it; remove the folder or "
                     "choose another run name"};
    }
    if (Status read = map.read_exact(0, page); !read) return read;
    const FirstPage kind = classify(page);
    if (kind == FirstPage::newer || kind == FirstPage::foreign) return not_usable(folder, kind);
    return {};
}

// The second half of opening, with the map held: nobody else makes, takes over or removes.
Result<DirectFile> open_data(const DirectFile& map, const std::string& folder, Existence existence,
                             const FileOperations& operations) {
    if (Status status = check_is_ours(map, folder); !status) return status.error();
    Result<DirectFile> data =
        DirectFile::open(folder + "/data", existence, CachePolicy::direct, operations);
    if (!data) return data;
    if (Status status = take_lock(*data, folder); !status) return status.error();
    return data;
}

// On btrfs every overwrite of an ordinary file goes elsewhere (a twelfth of the speed, and ENOSPC
// on a full drive in spite of the reservation); the flag must come before the first byte.
void forbid_copy_on_write(const DirectFile& file, std::vector<std::string>& notes) {
    struct statfs facts {};
    if (fstatfs(file.descriptor(), &facts) != 0 || facts.f_type != BTRFS_SUPER_MAGIC) return;
    int flags = 0;
    if (ioctl(file.descriptor(), FS_IOC_GETFLAGS, &flags) == 0) {
        if ((flags & FS_NOCOW_FL) != 0) return;
        flags |= FS_NOCOW_FL;
        if (ioctl(file.descriptor(), FS_IOC_SETFLAGS, &flags) == 0) return;
    }
    notes.push_back(file.path() +
                    " is copy-on-write: slow, and it can run out of space although it is reserved; "
                    "remove the store and mount with nodatacow, or choose another path");
}

Status reserve(RunFolder& folder, uint64_t data_bytes, std::vector<std::string>& notes) {
    // The probe wants a page, also where a path has no block.
    const Result<bool> is_reserved = folder.data.allocate(std::max(data_bytes, page_bytes));
    if (!is_reserved) return is_reserved.error();
    if (!*is_reserved) {
        notes.push_back("the file system of " + folder.path +
                        " cannot reserve space: the store may meet a full drive in mid-run");
    }
    return {};
}

void note_cache(const RunFolder& folder, std::vector<std::string>& notes) {
    if (!folder.data.is_buffered()) return;
    notes.push_back(fmt::format("{} goes through the page cache, which is dropped after use: {}",
                                folder.data.path(), folder.data.buffered_reason()));
}

Status write_owner(const RunFolder& folder) {
    return folder.map.write_exact(owner_page_offset, owner_page_of(this_owner()));
}

}  // namespace

bool exists(const std::string& file) {
    struct stat facts {};
    return lstat(file.c_str(), &facts) == 0;
}

std::string run_folder_of(const std::string& path, const std::string& run_name, Role role) {
    CHECK(!path.empty());
    CHECK(!run_name.empty());
    return fmt::format("{}{}{}{}{}", path, path.back() == '/' ? "" : "/", run_folder_prefix,
                       run_name, role == Role::successor ? successor_ending : "");
}

Status check_run_name(const std::string& run_name) {
    const bool is_plain = std::ranges::all_of(run_name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
    });
    const bool is_framed = !run_name.starts_with('.') && !run_name.ends_with(successor_ending);
    if (!run_name.empty() && run_name.size() <= 63 && is_plain && is_framed) return {};
    return Error{ErrorCode::usage, fmt::format("'{}' cannot name a run", run_name),
                 "a name has 1 to 63 letters, digits, '.', '_' or '-', and neither begins with '.' "
                 "nor ends in '.next'"};
}

uint64_t room_on_paths(const std::vector<std::string>& paths, const std::string& run_name) {
    CHECK(!paths.empty());
    struct Room {
        uint64_t free_bytes = 0;
        uint64_t stored_bytes = 0;
        uint64_t path_count = 0;
    };
    std::map<dev_t, Room> rooms;
    for (const std::string& path : paths) {
        struct stat facts {};
        if (stat(path.c_str(), &facts) != 0) return 0;
        Room& room = rooms[facts.st_dev];
        room.path_count++;
        room.free_bytes = std::max(room.free_bytes, free_bytes_at(path));
        room.stored_bytes += stored_bytes_of(path, run_name, Role::truth) +
                             stored_bytes_of(path, run_name, Role::successor);
    }
    uint64_t least_bytes = std::numeric_limits<uint64_t>::max();
    for (const auto& [device, room] : rooms) {
        least_bytes =
            std::min(least_bytes, (room.free_bytes + room.stored_bytes) / room.path_count);
    }
    return least_bytes * paths.size();
}

Status check_paths(const std::vector<PathNeed>& needs, const std::string& run_name, Role role) {
    CHECK(!needs.empty());
    std::map<dev_t, Demand> demands;
    std::map<std::pair<dev_t, ino_t>, std::string> seen;
    for (const PathNeed& need : needs) {
        struct stat facts {};
        if (Status status = check_folder(need.path, facts); !status) return status;
        const auto [other, is_new] = seen.try_emplace({facts.st_dev, facts.st_ino}, need.path);
        if (!is_new) {
            return Error{
                ErrorCode::usage,
                fmt::format("the NVMe paths {} and {} are one folder", other->second, need.path),
                "name each drive once"};
        }
        if (Status status = check_limits(need); !status) return status;
        Demand& demand = demands[facts.st_dev];
        demand.paths += (demand.paths.empty() ? "" : " and ") + need.path;
        demand.size_bytes += need.size_bytes;
        demand.free_bytes = std::max(demand.free_bytes, free_bytes_at(need.path));
    }
    for (const PathNeed& need : needs) {  // an older store of the run makes room
        struct stat facts {};
        if (stat(need.path.c_str(), &facts) != 0) continue;
        demands[facts.st_dev].free_bytes += stored_bytes_of(need.path, run_name, role);
    }
    for (const auto& [device, demand] : demands) {
        if (demand.size_bytes <= demand.free_bytes) continue;
        return Error{
            ErrorCode::does_not_fit,
            fmt::format("the store needs {} ({} bytes) in {} and {} ({} bytes) are free there",
                        format_bytes(demand.size_bytes), demand.size_bytes, demand.paths,
                        format_bytes(demand.free_bytes), demand.free_bytes),
            "free space, add a path, or place less on nvme"};
    }
    return {};
}

Result<std::unique_ptr<RunFolder>> open_run_folder(const FolderName& name, Existence existence,
                                                   const FileOperations& operations) {
    const std::string& path = name.path;
    const std::string folder = run_folder_of(path, name.run_name, name.role);
    const int made =
        existence == Existence::may_be_made ? make_folder(operations, folder) : -EEXIST;
    if (made < 0 && made != -EEXIST) return io_error("cannot make " + folder, path, -made);
    const bool was_made = made >= 0;
    struct stat facts {};
    if (lstat(folder.c_str(), &facts) != 0) return io_error("cannot stat " + folder, path, errno);
    if (!S_ISDIR(facts.st_mode)) {
        return Error{ErrorCode::failed, "cannot use " + folder,
                     "it is a link or a file, not a folder; remove it or choose another run name"};
    }
    const bool had_map = exists(folder + "/map");
    const bool had_data = exists(folder + "/data");
    if (!had_map && had_data) {
        return Error{ErrorCode::bad_data, "cannot replace " + folder,
                     "it has a file `data` and no `map`: no store made it; remove the folder or "
                     "choose another run name"};
    }
    if (existence == Existence::must_exist && !(had_map && had_data)) {
        return damaged(folder, fmt::format("it has no `{}`: its making was cut short, or somebody "
                                           "removed it",
                                           had_map ? "data" : "map"));
    }
    Result<DirectFile> map =
        DirectFile::open(folder + "/map", existence, CachePolicy::buffered, operations);
    if (!map) {
        if (was_made) remove_folder(operations, folder);
        return map.error();
    }
    if (Status status = take_lock(*map, folder); !status) return status.error();
    Result<DirectFile> data = open_data(*map, folder, existence, operations);
    if (!data) {  // a refusal leaves nothing new behind
        if (!had_data) remove_file(operations, folder + "/data");
        if (!had_map) remove_file(operations, folder + "/map");
        if (was_made) remove_folder(operations, folder);
        return data.error();
    }
    return std::unique_ptr<RunFolder>(new RunFolder{.path = path,
                                                    .folder = folder,
                                                    .map = std::move(*map),
                                                    .data = std::move(*data),
                                                    .was_made = was_made});
}

Status lay_out(RunFolder& folder, const MapImage& map, uint64_t data_bytes,
               std::vector<std::string>& notes) {
    CHECK(find_fault(map) == nullptr);
    CHECK_GE(data_bytes, map.superblock.data_bytes);
    forbid_copy_on_write(folder.data, notes);
    if (Status status = reserve(folder, data_bytes, notes); !status) return status;
    if (Status status = folder.data.probe(Probe::write_and_read); !status) return status;
    note_cache(folder, notes);
    const Result<bool> is_map_reserved = folder.map.allocate(map.superblock.map_bytes);
    if (!is_map_reserved) return is_map_reserved.error();
    Status status = folder.map.write_exact(path_table_offset, map.tables);
    if (status.ok()) status = write_owner(folder);
    if (status.ok()) status = folder.map.flush();
    const auto head = std::as_bytes(std::span(&map.superblock, 1));
    if (status.ok()) status = folder.map.write_exact(0, head);
    if (status.ok()) status = folder.map.flush();
    if (status.ok()) status = sync_folder(folder.folder, folder.map.operations());
    if (status.ok()) status = sync_folder(folder.path, folder.map.operations());
    return status;
}

Status lay_out_scratch(RunFolder& folder, const MapImage& map, uint64_t data_bytes,
                       std::vector<std::string>& notes) {
    CHECK(find_fault(map) == nullptr);
    CHECK_GE(data_bytes, map.superblock.data_bytes);
    Status status = reserve(folder, data_bytes, notes);
    if (status.ok()) status = folder.data.probe(Probe::read);
    if (!status.ok()) return status;
    note_cache(folder, notes);
    const Result<bool> is_map_reserved = folder.map.allocate(map.superblock.map_bytes);
    if (!is_map_reserved) return is_map_reserved.error();
    return write_owner(folder);
}

Result<std::optional<MapImage>> parse_map(const DirectFile& map, const std::string& folder) {
    const Result<uint64_t> map_bytes = map.size_bytes();
    if (!map_bytes) return map_bytes.error();
    if (*map_bytes < page_bytes) return std::optional<MapImage>{};
    Page page{};
    if (Status status = map.read_exact(0, page); !status) return status.error();
    const FirstPage kind = classify(page);
    if (kind == FirstPage::unfinished || kind == FirstPage::older) return std::optional<MapImage>{};
    if (kind != FirstPage::store) return not_usable(folder, kind);
    MapImage image{.superblock = superblock_of(page), .tables = {}};
    const Superblock& head = image.superblock;
    const bool is_sane = head.commit_area_offset[0] > path_table_offset &&
                         head.commit_area_offset[0] < head.map_bytes;
    if (!is_sane || *map_bytes != head.map_bytes) {
        return damaged(
            folder, fmt::format("its map has {} bytes instead of {}", *map_bytes, head.map_bytes));
    }
    image.tables.resize(head.commit_area_offset[0] - path_table_offset);
    Status status = map.read_exact(path_table_offset, image.tables);
    if (!status) return status.error();
    if (const char* fault = find_fault(image)) {
        return damaged(folder, std::string("its map: ") + fault);
    }
    return std::optional<MapImage>(std::move(image));
}

Status settle_map(const DirectFile& map) {
    if (Status status = map.flush(); !status) return status;
    const Result<uint64_t> map_bytes = map.size_bytes();
    if (!map_bytes) return map_bytes.error();
    return map.drop_cache(offload::Direction::read, 0, *map_bytes);
}

Result<MapImage> read_map(const RunFolder& folder) {
    if (Status status = settle_map(folder.map); !status) return status.error();
    const Result<uint64_t> data_bytes = folder.data.size_bytes();
    if (!data_bytes) return data_bytes.error();
    Result<std::optional<MapImage>> map = parse_map(folder.map, folder.folder);
    if (!map) return map.error();
    if (!map->has_value()) {
        return damaged(folder.folder,
                       "its making was cut short, or an older version made it: it has no commit");
    }
    const uint64_t wanted_bytes = (*map)->superblock.data_bytes;
    if (*data_bytes < wanted_bytes) {
        return damaged(folder.folder,
                       fmt::format("its data has {} bytes of {}", *data_bytes, wanted_bytes));
    }
    return std::move(**map);
}

Status sync_folder(const std::string& folder, const FileOperations& operations) {
    const int outcome = sync_entries(operations, folder);
    if (outcome >= 0) return {};
    return io_error("cannot make the folder " + folder + " durable", folder, -outcome);
}

Status unlink_held(const RunFolder& folder) {
    const FileOperations& operations = folder.map.operations();
    for (const char* name : {"/data", "/map"}) {
        const std::string file = folder.folder + name;
        const int outcome = remove_file(operations, file);
        if (outcome < 0 && outcome != -ENOENT) {
            return io_error("cannot remove " + file, folder.path, -outcome);
        }
    }
    const int outcome = remove_folder(operations, folder.folder);
    if (outcome >= 0 || outcome == -ENOENT) return {};
    if (outcome == -ENOTEMPTY || outcome == -EEXIST) {
        return Error{ErrorCode::failed, "cannot remove the folder " + folder.folder,
                     "it holds files that are not the store's; the store's own are removed"};
    }
    return io_error("cannot remove " + folder.folder, folder.path, -outcome);
}

Owner this_owner() {
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
    std::string boot_id;
    std::ifstream boot("/proc/sys/kernel/random/boot_id");
    boot >> boot_id;
    return {.pid = static_cast<uint32_t>(getpid()), .host = host.data(), .boot_id = boot_id};
}

}  // namespace headrace::nvme
