#include "engine/config/mounts.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

namespace headrace::engine {

namespace {

constexpr std::string_view drive_systems[] = {"ext2",  "ext3", "ext4", "xfs",
                                              "btrfs", "f2fs", "zfs",  "bcachefs"};

// mountinfo writes a space as \040 and the like.
std::string unescaped(const std::string& text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool is_escape = text[i] == '\\' && i + 3 < text.size();
        if (!is_escape) {
            plain += text[i];
            continue;
        }
        plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                   (text[i + 3] - '0'));
        i += 3;
    }
    return plain;
}

// "36 35 98:0 / /mnt/fast rw,noatime shared:1 - ext4 /dev/nvme0n1 rw": device, folder, system.
struct Line {
    std::string device, folder, options, file_system;
};

Line parse_line(const std::string& text) {
    std::istringstream words(text);
    Line line;
    std::string word;
    words >> word >> word >> line.device >> word >> line.folder >> line.options;
    while (words >> word && word != "-") {
    }
    words >> line.file_system;
    line.folder = unescaped(line.folder);
    return line;
}

bool is_read_only(const Line& line) {
    return line.options == "ro" || line.options.starts_with("ro,");
}

}  // namespace

std::vector<Mount> mounts_with_room(uint64_t least_bytes, const std::string& root) {
    std::ifstream file(root + "/proc/self/mountinfo");
    std::vector<Mount> mounts;
    std::set<std::string> devices;
    for (std::string text; std::getline(file, text);) {
        const Line line = parse_line(text);
        const bool is_drive =
            std::ranges::find(drive_systems, line.file_system) != std::end(drive_systems);
        // Files that are mounted over files (as containers do) hold no folder.
        struct statvfs space {};
        if (!is_drive || is_read_only(line) || ::statvfs(line.folder.c_str(), &space) != 0 ||
            ::access((line.folder + "/.").c_str(), W_OK | X_OK) != 0) {
            continue;
        }
        const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
        if (free_bytes < least_bytes || !devices.insert(line.device).second) continue;
        mounts.push_back({line.folder, line.file_system, free_bytes});
    }
    std::ranges::stable_sort(mounts, std::greater<>(), &Mount::free_bytes);
    return mounts;
}

}  // namespace headrace::engine
