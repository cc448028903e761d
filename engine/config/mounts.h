// Mounted file systems that could hold a store: on a drive, written to by this user, with room.
// Read from /proc/self/mountinfo and statvfs: facts, no advice. `root` stands before /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::engine {

struct Mount {
    std::string folder;
    std::string file_system;  // "ext4", "xfs", "btrfs"
    uint64_t free_bytes = 0;  // for this user
};

// Those with at least `least_bytes` free, the roomiest first; of one device the first one only.
// File systems in memory, of networks and of the kernel are not drives. Empty where nothing can be
// read.
std::vector<Mount> mounts_with_room(uint64_t least_bytes, const std::string& root = "");

}  // namespace headrace::engine
