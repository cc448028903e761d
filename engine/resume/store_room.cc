#include "engine/resume/store_room.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "engine/checkpoint/file.h"
#include "engine/resume/run_store.h"
#include "nvme/run_folder.h"
#include "offload/check.h"
#include "offload/sizes.h"

namespace headrace::engine {

namespace {

constexpr uint64_t margin_divisor = 64;

bool is_on_same_file_system(const std::filesystem::path& one, const std::string& other) {
    struct stat facts {};
    struct stat other_facts {};
    if (::stat(one.c_str(), &facts) != 0 || ::stat(other.c_str(), &other_facts) != 0) return false;
    return facts.st_dev == other_facts.st_dev;
}

}  // namespace

uint64_t room_for_store(const RunConfig& config, uint64_t result_bytes) {
    const std::vector<std::string>& paths = config.offload.nvme_paths;
    CHECK(!paths.empty());
    const uint64_t room_bytes = nvme::room_on_paths(paths, store_name_of(config));
    std::error_code failure;  // then it shares no drive
    const std::filesystem::path output = nearest_existing(config.output_dir, failure);
    const bool shares = std::ranges::any_of(
        paths, [&](const std::string& path) { return is_on_same_file_system(output, path); });
    const uint64_t kept_bytes = room_bytes / margin_divisor + (shares ? result_bytes : 0);
    return offload::excess(room_bytes, kept_bytes);
}

}  // namespace headrace::engine
