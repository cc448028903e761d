// FileSystem: what a path lies on, and whether a store may: a table of file systems with a verdict
// each, in words for people, and the physical drives behind a path (through partitions, volumes,
// encryption and loop devices), so that two paths that share one are noticed.
//
// The verdict says what is known beforehand. What a file system really does is found out by doing
// it: O_DIRECT by a first write and read (DirectFile::probe), locks by taking them.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "offload/result.h"

namespace headrace::nvme {

// works: past the page cache. with_care: works, but there is something to know before days of
// training. buffered: works through the page cache, slower, and it takes RAM in passing. refused:
// it lacks what a store cannot do without.
enum class Verdict : uint8_t { works, with_care, buffered, refused };

struct FileSystem {
    std::string_view name;
    Verdict verdict = Verdict::works;
    std::string_view sentence;  // why
    std::string_view remedy;    // what to do about it; empty where nothing is to be done
};

// The row of a magic number of statfs; `name` "unknown" where there is none.
const FileSystem& file_system_of(uint64_t magic);

// All rows, for tests and documents.
std::vector<FileSystem> known_file_systems();

// A path's mount, from /proc/self/mountinfo.
struct Mount {
    std::string type;     // "ext4", "9p"
    std::string source;   // "/dev/nvme0n1p2", "server:/export"
    std::string options;  // of mount and file system
};

// The mount of a device number in the text of a mountinfo file; all empty if it is not there.
Mount mount_of(const std::string& mountinfo, uint32_t major_number, uint32_t minor_number);

// A drive of Windows under WSL: told by the mount, since the magic number is any 9p's or virtiofs'.
bool is_windows_drive(const Mount& mount);

// What the path lies on; "unknown" where it cannot be asked.
const FileSystem& file_system_at(const std::string& path);

// The names of the drives ("nvme0n1", "sda") that hold the path's bytes; empty where there is none
// (network, memory) or the system does not say. sys: "/sys", another root for tests.
std::set<std::string> drives_of(const std::string& path, const std::string& sys = "/sys");

// Below sys, the drives behind one block device.
std::set<std::string> drives_of_device(const std::string& sys, uint32_t major_number,
                                       uint32_t minor_number);

// Before anything is made: an Error for a path whose file system is refused; otherwise a line for
// each path that wants care, and for each pair of paths on one drive.
offload::Result<std::vector<std::string>> check_file_systems(const std::vector<std::string>& paths);

}  // namespace headrace::nvme
