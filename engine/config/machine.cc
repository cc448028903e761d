#include "engine/config/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 5> telling_features = {"avx2", "fma", "avx512f",
                                                              "avx512_bf16", "amx_bf16"};

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return std::move(text).str();
}

// The number a file holds; "max" and whatever else is no number are absent.
std::optional<uint64_t> number_in_file(const std::string& path) {
    const std::string text = text_of_file(path);
    uint64_t number = 0;
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    return failure == std::errc{} ? std::optional(number) : std::nullopt;
}

// "MemTotal:       16384 kB" -> bytes; 0 where there is no such line.
uint64_t meminfo_bytes(const std::string& meminfo, const std::string& name) {
    std::istringstream lines(meminfo);
    std::string line;
    while (std::getline(lines, line)) {
        if (!line.starts_with(name + ":")) continue;
        std::istringstream words(line.substr(name.size() + 1));
        uint64_t size_kib = 0;
        words >> size_kib;
        return size_kib * offload::kib;
    }
    return 0;
}

// CAP_IPC_LOCK, bit 14 of CapEff: the limit of locked memory does not bind this process.
bool may_lock_memory(const std::string& root) {
    std::istringstream lines(text_of_file(root + "/proc/self/status"));
    std::string line;
    while (std::getline(lines, line)) {
        if (!line.starts_with("CapEff:")) continue;
        return ((std::strtoull(line.c_str() + 7, nullptr, 16) >> 14) & 1) != 0;
    }
    return false;
}

void read_cpu(const std::string& cpuinfo, Machine& machine) {
    constexpr std::array<std::string_view, 3> kind_lines = {"vendor_id", "cpu family", "model"};
    std::array<std::string, 3> kind;
    std::istringstream lines(cpuinfo);
    std::string line;
    while (std::getline(lines, line)) {
        const size_t colon = line.find(": ");
        if (line.starts_with("processor")) ++machine.cpu_count;
        if (colon == std::string::npos) continue;
        const std::string value = line.substr(colon + 2);
        if (line.starts_with("model name")) machine.cpu_model = value;
        for (size_t i = 0; i < kind_lines.size(); ++i) {
            if (line.substr(0, line.find_first_of("\t:")) == kind_lines[i]) kind[i] = value;
        }
        if (!line.starts_with("flags") || !machine.cpu_features.empty()) continue;
        std::istringstream words(value);
        std::string word;
        while (words >> word) {
            if (std::ranges::find(telling_features, word) != telling_features.end()) {
                machine.cpu_features.push_back(word);
            }
        }
    }
    if (!kind[0].empty()) machine.cpu_kind = fmt::format("{}", fmt::join(kind, "-"));
}

struct CgroupFiles {
    const char* mount;  // where the hierarchy is, below root
    const char* limit;
    const char* used;
    const char* total;  // before the names in memory.stat that count the children too
};
constexpr CgroupFiles version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                   "memory.usage_in_bytes", "total_"};
constexpr CgroupFiles version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", ""};

// What a cgroup's processes hold: its usage, less the file cache, which is given back on demand.
// (A container that has read files for long enough is always full of cache.)
uint64_t held_bytes(const std::string& folder, const CgroupFiles& files) {
    const uint64_t used_bytes = number_in_file(folder + "/" + files.used).value_or(0);
    std::istringstream lines(text_of_file(folder + "/memory.stat"));
    uint64_t cache_bytes = 0;
    std::string name;
    for (uint64_t size_bytes = 0; lines >> name >> size_bytes;) {
        const bool is_cache = name == files.total + std::string("inactive_file") ||
                              name == files.total + std::string("active_file");
        if (is_cache) cache_bytes += size_bytes;
    }
    return used_bytes - std::min(used_bytes, cache_bytes);
}

// The tightest limit from the cgroup up to the root of its hierarchy. A container may see its own
// cgroup as the root, whatever path /proc says: folders that do not exist are passed over.
void read_cgroup(const std::string& root, const CgroupFiles& files, fs::path path,
                 Machine& machine) {
    constexpr int depth_max = 64;
    for (int depth = 0; depth < depth_max; ++depth) {
        const std::string folder = root + files.mount + path.string();
        const std::optional<uint64_t> limit = number_in_file(folder + "/" + files.limit);
        // Version 1 says "none" by a number beyond any memory.
        const bool is_limit = limit && (machine.ram_bytes == 0 || *limit < machine.ram_bytes);
        if (is_limit && (!machine.ram_limit_bytes || *limit < *machine.ram_limit_bytes)) {
            machine.ram_limit_bytes = limit;
            machine.ram_used_in_limit_bytes = held_bytes(folder, files);
        }
        if (!path.has_relative_path()) return;
        path = path.parent_path();
    }
}

// Lines of /proc/self/cgroup: "0::/path" (version 2) and "4:memory:/path" (version 1).
void read_cgroups(const std::string& root, Machine& machine) {
    std::istringstream lines(text_of_file(root + "/proc/self/cgroup"));
    std::string line;
    while (std::getline(lines, line)) {
        if (line.starts_with("0::/")) read_cgroup(root, version_2, line.substr(3), machine);
        const size_t memory = line.find(":memory:/");
        if (memory != std::string::npos) {
            read_cgroup(root, version_1, line.substr(memory + 8), machine);
        }
    }
}

struct FileSystem {
    uint64_t magic;
    std::string_view name;
    bool is_in_memory;
};
constexpr std::array<FileSystem, 10> file_systems = {{{0xEF53, "ext4", false},
                                                      {0x58465342, "xfs", false},
                                                      {0x9123683E, "btrfs", false},
                                                      {0x01021994, "tmpfs", true},
                                                      {0x858458F6, "ramfs", true},
                                                      {0x794C7630, "overlayfs", false},
                                                      {0x2FC12FC1, "zfs", false},
                                                      {0xF2F52010, "f2fs", false},
                                                      {0x6969, "nfs", false},
                                                      {0x01021997, "9p", false}}};

}  // namespace

uint64_t Machine::ram_free_bytes() const {
    if (!ram_limit_bytes) return ram_available_bytes;
    const uint64_t used_bytes = std::min(*ram_limit_bytes, ram_used_in_limit_bytes);
    return std::min(ram_available_bytes, *ram_limit_bytes - used_bytes);
}

Machine read_machine(const std::string& root) {
    Machine machine;
    utsname names{};
    CHECK_EQ(uname(&names), 0);
    machine.kernel = names.release;
    read_cpu(text_of_file(root + "/proc/cpuinfo"), machine);
    const std::string meminfo = text_of_file(root + "/proc/meminfo");
    machine.ram_bytes = meminfo_bytes(meminfo, "MemTotal");
    machine.ram_available_bytes = meminfo_bytes(meminfo, "MemAvailable");
    read_cgroups(root, machine);

    rlimit memlock{};
    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &memlock), 0);
    const bool is_bound = memlock.rlim_cur != RLIM_INFINITY && !may_lock_memory(root);
    if (is_bound) machine.memlock_limit_bytes = memlock.rlim_cur;
    const std::string modes = text_of_file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
    const size_t open = modes.find('[');
    const size_t close = modes.find(']');
    if (open != std::string::npos && close != std::string::npos && open < close) {
        machine.transparent_huge_pages = modes.substr(open + 1, close - open - 1);
    }
    machine.reserved_huge_page_count =
        static_cast<int64_t>(number_in_file(root + "/proc/sys/vm/nr_hugepages").value_or(0));
    return machine;
}

std::optional<DriveSpace> read_drive_space(const std::string& folder) {
    struct statfs facts {};
    if (statfs(folder.c_str(), &facts) != 0) return std::nullopt;
    CHECK_GT(facts.f_bsize, 0);
    const auto magic = static_cast<uint64_t>(facts.f_type) & 0xFFFFFFFFu;
    DriveSpace space{
        .file_system = fmt::format("file system {:#x}", magic),
        .free_bytes = static_cast<uint64_t>(facts.f_bavail) * static_cast<uint64_t>(facts.f_bsize)};
    for (const FileSystem& known : file_systems) {
        if (known.magic != magic) continue;
        space.file_system = known.name;
        space.is_in_memory = known.is_in_memory;
    }
    return space;
}

}  // namespace headrace::engine
