#include "nvme/file_system.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "offload/check.h"

namespace headrace::nvme {

using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

constexpr std::string_view use_local_drive =
    "use a folder on a local drive (ext4 or xfs on NVMe) where there is one";
constexpr std::string_view exclude_copies =
    "keep the store's folder out of snapshots and reflink copies: each makes the reserved space "
    "void, and a full drive then stops the run";

struct Row {
    uint64_t magic;
    FileSystem file_system;
};

// Magic numbers: linux/magic.h, and the sources of the file systems that are not in Linux.
constexpr std::array rows = {
    Row{0xEF53, {"ext4", Verdict::works, "past the page cache, space reserved", ""}},
    Row{0x58465342,
        {"xfs", Verdict::works, "past the page cache, space reserved unless it is reflinked",
         exclude_copies}},
    Row{0xF2F52010, {"f2fs", Verdict::works, "past the page cache, space reserved", ""}},
    Row{0x9123683E,
        {"btrfs", Verdict::with_care,
         "past the page cache and without copy-on-write, unless snapshots bring it back",
         exclude_copies}},
    Row{0xCA451A4E,
        {"bcachefs", Verdict::with_care,
         "copy-on-write: every write goes elsewhere, and reserved space is not kept",
         "use ext4 or xfs for this folder"}},
    Row{0x01021994,
        {"tmpfs", Verdict::buffered, "it is in memory: it takes what it should save",
         "use a folder on a drive"}},
    Row{0x858458F6,
        {"ramfs", Verdict::buffered, "it is in memory: it takes what it should save",
         "use a folder on a drive"}},
    Row{0x794C7630,
        {"overlayfs", Verdict::with_care,
         "as fast as what lies below; a container's own layer is often small and is deleted with "
         "it",
         "mount a folder of the host: docker run -v /mnt/fast:/mnt/fast"}},
    Row{0x2FC12FC1,
        {"zfs", Verdict::with_care,
         "copy-on-write: reserved space is not kept; before 2.3, or with direct=disabled, every "
         "byte goes through the ARC and takes RAM",
         "a dataset with recordsize=1M, compression=off, primarycache=metadata and "
         "direct=standard"}},
    Row{0x6969,
        {"nfs", Verdict::with_care,
         "every byte crosses the network, space is not reserved before NFS 4.2, and locks need the "
         "server's consent (mounted with nolock they hold on this host only)",
         use_local_drive}},
    Row{0xFE534D42,
        {"smb", Verdict::with_care, "every byte crosses the network; mount with cache=none",
         use_local_drive}},
    Row{0xFF534D42,
        {"cifs", Verdict::with_care, "every byte crosses the network; mount with cache=none",
         use_local_drive}},
    Row{0x0BD00BD0,
        {"lustre", Verdict::with_care,
         "every byte crosses the network, and locks need the mount option flock",
         "mount with -o flock (localflock locks on this host only), stripe the folder over several "
         "OSTs (lfs setstripe -c -1 -S 4M), or use a node-local drive"}},
    Row{0x47504653,
        {"gpfs", Verdict::with_care, "every byte crosses the network", use_local_drive}},
    Row{0x19830326,
        {"beegfs", Verdict::with_care,
         "every byte crosses the network, and locks are global only with tuneUseGlobalFileLocks",
         use_local_drive}},
    Row{0x00C36400,
        {"ceph", Verdict::with_care, "every byte crosses the network", use_local_drive}},
    Row{0x65735546,
        {"fuse", Verdict::with_care,
         "a program serves every request, O_DIRECT and locks are as good as that program",
         use_local_drive}},
    Row{0x01021997,
        {"9p", Verdict::with_care,
         "a program on the host serves every request, and space is not reserved", use_local_drive}},
    Row{0x4D44,
        {"vfat", Verdict::refused, "it has no files above 4 GiB and reserves no space",
         "use ext4 or xfs"}},
    Row{0x2011BAB0,
        {"exfat", Verdict::with_care,
         "it has no owners and modes, and reserving space writes it in full", "use ext4 or xfs"}},
    Row{0x7366746E,
        {"ntfs3", Verdict::with_care, "reserving space is slow, and a crash may need Windows",
         "use ext4 or xfs"}},
    Row{0x5346544E,
        {"ntfs", Verdict::with_care, "a program serves every request", "use ext4 or xfs"}},
    Row{0xF15F,
        {"ecryptfs", Verdict::buffered, "it has no O_DIRECT",
         "use dm-crypt below ext4, which has"}},
    Row{0x73717368, {"squashfs", Verdict::refused, "it is read-only", "choose another folder"}},
    Row{0xE0F5E1E2, {"erofs", Verdict::refused, "it is read-only", "choose another folder"}},
    Row{0x9660, {"iso9660", Verdict::refused, "it is read-only", "choose another folder"}},
    Row{0x53464846,  // WSL 1
        {"wslfs", Verdict::refused, "WSL 1 has neither O_DIRECT nor io_uring",
         "convert the distribution: wsl --set-version NAME 2"}},
};

constexpr FileSystem windows_drive = {
    "a Windows drive", Verdict::refused,
    "Windows serves it to WSL request by request: neither O_DIRECT nor reserved space, and no lock "
    "that outlives a killed run",
    "use a folder inside WSL's own disk, which is ext4, such as ~/headrace"};
constexpr FileSystem unknown = {"unknown", Verdict::works,
                                "it is not in the table: the store finds out what it can", ""};

// What a path may be stacked on: encryption on a volume on a RAID on partitions, in an image.
constexpr int stack_depth_max = 8;

std::string text_of(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::string device_folder(const std::string& sys, uint32_t major_number, uint32_t minor_number) {
    return fmt::format("{}/dev/block/{}:{}", sys, major_number, minor_number);
}

std::set<std::string> drives_below(const std::string& sys, const std::string& path, int depth);

// A device's drives are those of its parts; the depth is bounded.
std::set<std::string> drives_of_number(const std::string& sys, uint32_t major_number,
                                       uint32_t minor_number, int depth) {
    namespace fs = std::filesystem;
    std::error_code failed;
    if (depth == 0) return {};
    fs::path folder = fs::canonical(device_folder(sys, major_number, minor_number), failed);
    if (failed) return {};
    if (fs::exists(folder / "partition", failed)) folder = folder.parent_path();
    std::string backing = text_of(folder / "loop/backing_file");
    if (!backing.empty()) {
        if (backing.back() == '\n') backing.pop_back();
        return drives_below(sys, backing, depth - 1);
    }
    std::set<std::string> drives;
    for (const auto& part : fs::directory_iterator(folder / "slaves", failed)) {
        uint32_t part_major = 0;
        uint32_t part_minor = 0;
        char colon = ' ';
        std::istringstream number(text_of(part.path() / "dev"));
        if (!(number >> part_major >> colon >> part_minor) || colon != ':') continue;
        drives.merge(drives_of_number(sys, part_major, part_minor, depth - 1));
    }
    if (drives.empty()) drives.insert(folder.filename());
    return drives;
}

std::string option_of(const std::string& options, std::string_view name) {
    const std::string key = fmt::format(",{}=", name);
    const std::string text = "," + options;
    const size_t begin = text.find(key);
    if (begin == std::string::npos) return "";
    const size_t from = begin + key.size();
    return text.substr(from, text.find(',', from) - from);
}

std::set<std::string> drives_below(const std::string& sys, const std::string& path, int depth) {
    struct stat facts {};
    if (depth == 0 || stat(path.c_str(), &facts) != 0) return {};
    const uint32_t major_number = major(facts.st_dev);
    const uint32_t minor_number = minor(facts.st_dev);
    if (major_number != 0) return drives_of_number(sys, major_number, minor_number, depth);
    // Without a device of its own: btrfs names one in its mount, overlayfs a folder.
    const Mount mount = mount_of(text_of("/proc/self/mountinfo"), major_number, minor_number);
    if (mount.type == "overlay") {
        return drives_below(sys, option_of(mount.options, "upperdir"), depth - 1);
    }
    if (!mount.source.starts_with("/dev/") || stat(mount.source.c_str(), &facts) != 0) return {};
    if (!S_ISBLK(facts.st_mode)) return {};
    return drives_of_number(sys, major(facts.st_rdev), minor(facts.st_rdev), depth);
}

}  // namespace

const FileSystem& file_system_of(uint64_t magic) {
    static_assert(rows.size() > 1);
    // Of 32 bits; some kernels extend the sign.
    const auto* const found = std::ranges::find(rows, magic & 0xFFFFFFFF, &Row::magic);
    return found == rows.end() ? unknown : found->file_system;
}

std::vector<FileSystem> known_file_systems() {
    std::vector<FileSystem> known = {windows_drive, unknown};
    for (const Row& row : rows) known.push_back(row.file_system);
    return known;
}

// A line: id, parent, major:minor, root, mount point, options, optional fields, "-", type, source,
// super options (proc_pid_mountinfo(5)).
Mount mount_of(const std::string& mountinfo, uint32_t major_number, uint32_t minor_number) {
    const std::string wanted = fmt::format("{}:{}", major_number, minor_number);
    std::istringstream lines(mountinfo);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string id, parent, device, root, point, options, word;
        words >> id >> parent >> device >> root >> point >> options;
        if (device != wanted) continue;
        while (words >> word && word != "-") {
        }
        Mount mount;
        std::string super_options;
        words >> mount.type >> mount.source >> super_options;
        mount.options = options + "," + super_options;
        return mount;
    }
    return {};
}

bool is_windows_drive(const Mount& mount) {
    return (mount.type == "9p" && option_of(mount.options, "aname").starts_with("drvfs")) ||
           (mount.type == "virtiofs" && mount.source.starts_with("drvfs")) || mount.type == "drvfs";
}

const FileSystem& file_system_at(const std::string& path) {
    struct statfs facts {};
    struct stat device {};
    if (statfs(path.c_str(), &facts) != 0 || stat(path.c_str(), &device) != 0) return unknown;
    const Mount mount =
        mount_of(text_of("/proc/self/mountinfo"), major(device.st_dev), minor(device.st_dev));
    if (is_windows_drive(mount)) return windows_drive;
    return file_system_of(static_cast<uint64_t>(facts.f_type));
}

std::set<std::string> drives_of_device(const std::string& sys, uint32_t major_number,
                                       uint32_t minor_number) {
    CHECK(!sys.empty());
    return drives_of_number(sys, major_number, minor_number, stack_depth_max);
}

std::set<std::string> drives_of(const std::string& path, const std::string& sys) {
    CHECK(!sys.empty());
    return drives_below(sys, path, stack_depth_max);
}

Result<std::vector<std::string>> check_file_systems(const std::vector<std::string>& paths) {
    std::vector<std::string> notes;
    std::vector<std::set<std::string>> drives;
    for (const std::string& path : paths) {
        const FileSystem& found = file_system_at(path);
        CHECK(!found.sentence.empty());
        if (found.verdict == Verdict::refused) {
            return Error{
                ErrorCode::failed,
                fmt::format("cannot keep a store in {}, which lies on {}", path, found.name),
                fmt::format("{}; {}", found.sentence, found.remedy)};
        }
        if (found.verdict == Verdict::with_care) {
            notes.push_back(fmt::format("{} lies on {}: {}; {}", path, found.name, found.sentence,
                                        found.remedy));
        }
        drives.push_back(drives_of(path));
        for (size_t other = 0; other + 1 < drives.size(); other++) {
            std::vector<std::string> shared;
            std::ranges::set_intersection(drives[other], drives.back(), std::back_inserter(shared));
            if (shared.empty()) continue;
            notes.push_back(fmt::format(
                "the NVMe paths {} and {} lie on one drive ({}): together they are no faster than "
                "one of them; name one path per drive",
                paths[other], path, fmt::join(shared, ", ")));
        }
    }
    return notes;
}

}  // namespace headrace::nvme
