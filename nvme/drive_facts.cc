#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "nvme/drive.h"
#include "nvme/file_system.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t sector_bytes = 512;  // the unit of every size in sysfs, whatever the drive's

// The first line of a file without blanks around it; empty if there is none.
std::string line_of(const fs::path& file) {
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos) return "";
    return line.substr(first, line.find_last_not_of(" \t\n") - first + 1);
}

uint64_t number_of(const fs::path& file) {
    std::ifstream stream(file);
    uint64_t number = 0;
    stream >> number;
    return stream ? number : 0;
}

// The name of a block device; empty where there is none. A file system that shows a number of its
// own (btrfs) is found by the name of its source.
std::string device_of(dev_t number, const std::string& source, const std::string& root) {
    std::error_code none;
    const fs::path by_number = fs::canonical(
        root + fmt::format("/sys/dev/block/{}:{}", major(number), minor(number)), none);
    if (!none) return by_number.filename();
    if (!source.starts_with("/dev/")) return "";
    const fs::path node = fs::canonical(root + source, none);  // /dev/mapper/name links to ../dm-0
    return none ? "" : node.filename().string();
}

std::string uuid_of(const std::string& device, const std::string& root) {
    std::error_code none;
    for (const auto& link : fs::directory_iterator(root + "/dev/disk/by-uuid", none)) {
        const fs::path target = fs::read_symlink(link.path(), none);
        if (!none && target.filename() == device) return link.path().filename();
    }
    return "";
}

void read_disks(const std::string& folder, const std::string& root, DriveFacts& facts) {
    for (const std::string& disk : drives_of(folder, root + "/sys")) facts.disks.push_back(disk);
    const fs::path block = root + "/sys/class/block";
    for (const std::string& disk : facts.disks) {
        facts.size_bytes += number_of(block / disk / "size") * sector_bytes;
        facts.is_rotational |= number_of(block / disk / "queue/rotational") == 1;
    }
    if (facts.disks.empty()) return;
    const fs::path first = block / facts.disks[0];
    facts.model = line_of(first / "device/model");
    facts.serial = line_of(first / "device/serial");
    if (facts.serial.empty()) facts.serial = line_of(first / "serial");
    facts.write_cache = line_of(first / "queue/write_cache");
}

}  // namespace

double DriveFacts::fill() const {
    if (file_system_bytes == 0) return 0;
    CHECK_LE(free_bytes, file_system_bytes);
    return 1 - static_cast<double>(free_bytes) / static_cast<double>(file_system_bytes);
}

DriveFacts read_drive_facts(const std::string& folder, const std::string& root) {
    DriveFacts facts;
    struct stat status {};
    if (stat(folder.c_str(), &status) != 0) return facts;
    struct statvfs space {};
    if (statvfs(folder.c_str(), &space) == 0) {
        facts.file_system_bytes = static_cast<uint64_t>(space.f_blocks) * space.f_frsize;
        facts.free_bytes = std::min(static_cast<uint64_t>(space.f_bavail) * space.f_frsize,
                                    facts.file_system_bytes);
    }
    std::ifstream stream(root + "/proc/self/mountinfo");
    const std::string mounts{std::istreambuf_iterator<char>(stream), {}};
    const Mount mount = mount_of(mounts, major(status.st_dev), minor(status.st_dev));
    facts.file_system = mount.type;
    facts.device = device_of(status.st_dev, mount.source, root);
    if (facts.device.empty()) return facts;
    facts.file_system_uuid = uuid_of(facts.device, root);
    read_disks(folder, root, facts);
    return facts;
}

std::string describe(const DriveFacts& facts) {
    std::string text = facts.file_system.empty() ? "unknown file system" : facts.file_system;
    if (facts.device.empty()) {
        text += ", no drive of its own";
    } else {
        text += fmt::format(" on {} ({}, {})", facts.device,
                            facts.model.empty() ? "model unknown" : facts.model,
                            offload::format_bytes(facts.size_bytes));
        if (facts.disks.size() > 1) text += fmt::format(" over {} disks", facts.disks.size());
    }
    text += fmt::format(", {:.0f}% full", 100 * facts.fill());
    if (!facts.write_cache.empty()) text += ", write cache: " + facts.write_cache;
    if (facts.is_rotational) text += ", rotating";
    return text;
}

}  // namespace headrace::nvme
