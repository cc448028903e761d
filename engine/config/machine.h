// What this machine offers, read from /proc, /sys and the kernel: facts, no advice. `root` stands
// before every path, so that a test can offer a machine of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headrace::engine {

// A fact that cannot be read is 0, empty, or absent: nothing here is an error.
struct Machine {
    std::string kernel;     // "6.1.0-18-amd64"
    std::string cpu_model;  // as /proc/cpuinfo says it
    // "AuthenticAMD-25-17": vendor, family and model, by which libraries choose their loops. A
    // virtual machine often calls unlike processors by one name.
    std::string cpu_kind;
    int64_t cpu_count = 0;                  // logical
    std::vector<std::string> cpu_features;  // of avx2, fma, avx512f, avx512_bf16, amx_bf16

    uint64_t ram_bytes = 0;
    uint64_t ram_available_bytes = 0;         // without pushing anybody out
    std::optional<uint64_t> ram_limit_bytes;  // of the memory cgroup this process is in
    uint64_t ram_used_in_limit_bytes = 0;     // by that cgroup now

    std::optional<uint64_t> memlock_limit_bytes;  // absent: none that binds this process
    std::string transparent_huge_pages;           // "always", "madvise" or "never"
    int64_t reserved_huge_page_count = 0;         // of /proc/sys/vm/nr_hugepages

    // What this process may still take: the least of what is available and what the limit leaves.
    uint64_t ram_free_bytes() const;
};

Machine read_machine(const std::string& root = "");

// A folder's file system. Absent where the folder does not exist.
struct DriveSpace {
    std::string file_system;  // "ext4", "xfs", "btrfs", "tmpfs", "overlayfs", or its number
    uint64_t free_bytes = 0;  // for this user
    bool is_in_memory = false;
};
std::optional<DriveSpace> read_drive_space(const std::string& folder);

}  // namespace headrace::engine
