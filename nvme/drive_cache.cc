#include "nvme/drive_cache.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "offload/check.h"

namespace headrace::nvme {

namespace {

constexpr int cache_version = 1;
constexpr uintmax_t cache_bytes_max = 1 << 20;  // a larger one is not ours

using Json = nlohmann::json;

// The whole file, or an empty one where it is missing or not as DRIVES.md says.
Json read_cache(const std::string& file) {
    const Json empty = {{"version", cache_version}, {"drives", Json::object()}};
    std::error_code none;
    const uintmax_t size_bytes = std::filesystem::file_size(file, none);
    if (none || size_bytes > cache_bytes_max) return empty;
    std::ifstream stream(file);
    Json cache = Json::parse(stream, nullptr, false);
    if (!cache.is_object() || cache.value("version", Json()) != cache_version) return empty;
    if (!cache.contains("drives") || !cache["drives"].is_object()) return empty;
    return cache;
}

std::optional<double> rate_at(const Json& entry, const char* name) {
    if (!entry.contains(name) || !entry[name].is_number()) return std::nullopt;
    const double rate = entry[name].get<double>();
    if (!std::isfinite(rate) || rate <= 0) return std::nullopt;
    return rate;
}

std::optional<KnownDrive> known_of(const Json& entry) {
    if (!entry.is_object()) return std::nullopt;
    const auto read = rate_at(entry, "read_bytes_per_s");
    const auto burst = rate_at(entry, "write_burst_bytes_per_s");
    const auto sustained = rate_at(entry, "write_sustained_bytes_per_s");
    const auto mixed = rate_at(entry, "mixed_bytes_per_s");
    if (!read || !burst || !sustained || !mixed) return std::nullopt;
    for (const char* name : {"has_fallen", "is_quick"}) {
        if (!entry.contains(name) || !entry[name].is_boolean()) return std::nullopt;
    }
    for (const char* name : {"burst_bytes", "measured_unix_s"}) {
        if (!entry.contains(name) || !entry[name].is_number_integer()) return std::nullopt;
    }
    return KnownDrive{.drive = {.read_bytes_per_s = *read,
                                .write_burst_bytes_per_s = *burst,
                                .write_sustained_bytes_per_s = *sustained,
                                .mixed_bytes_per_s = *mixed,
                                .burst_bytes = entry["burst_bytes"].get<uint64_t>(),
                                .has_fallen = entry["has_fallen"].get<bool>()},
                      .is_quick = entry["is_quick"].get<bool>(),
                      .measured_unix_s = entry["measured_unix_s"].get<int64_t>()};
}

Json entry_of(const KnownDrive& known) {
    const Drive& drive = known.drive;
    return {{"measured_unix_s", known.measured_unix_s},
            {"is_quick", known.is_quick},
            {"read_bytes_per_s", drive.read_bytes_per_s},
            {"write_burst_bytes_per_s", drive.write_burst_bytes_per_s},
            {"write_sustained_bytes_per_s", drive.write_sustained_bytes_per_s},
            {"mixed_bytes_per_s", drive.mixed_bytes_per_s},
            {"burst_bytes", drive.burst_bytes},
            {"has_fallen", drive.has_fallen}};
}

}  // namespace

std::string key_of(const DriveFacts& facts) {
    if (facts.device.empty()) return "";
    std::string key = fmt::format("{} {} {} {} {} {}", facts.file_system, facts.file_system_uuid,
                                  facts.device, facts.model, facts.serial, facts.file_system_bytes);
    // A model's name may hold any byte, JSON may not.
    std::ranges::replace_if(
        key, [](char c) { return c < 0x20 || c > 0x7E; }, '?');
    return key;
}

std::optional<KnownDrive> DriveCache::find(const DriveFacts& facts, int64_t now_unix_s) const {
    const std::string key = key_of(facts);
    if (file_.empty() || key.empty()) return std::nullopt;
    const Json cache = read_cache(file_);
    const auto entry = cache["drives"].find(key);
    if (entry == cache["drives"].end()) return std::nullopt;
    std::optional<KnownDrive> known = known_of(*entry);
    if (!known) return std::nullopt;
    const int64_t age_seconds = now_unix_s - known->measured_unix_s;
    const int64_t age_max = known->is_quick ? quickly_known_seconds_max : known_seconds_max;
    if (age_seconds < 0 || age_seconds > age_max) return std::nullopt;
    return known;
}

bool DriveCache::keep(const DriveFacts& facts, const KnownDrive& known) const {
    CHECK_GT(known.drive.read_bytes_per_s, 0.0);
    CHECK_GT(known.drive.write_sustained_bytes_per_s, 0.0);
    const std::string key = key_of(facts);
    if (file_.empty() || key.empty()) return false;
    if (known.is_quick) {
        const std::optional<KnownDrive> before = find(facts, known.measured_unix_s);
        if (before && !before->is_quick) return false;
    }
    Json cache = read_cache(file_);
    cache["drives"][key] = entry_of(known);
    std::error_code failed;
    std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), failed);
    const std::string beside = fmt::format("{}.{}", file_, getpid());
    bool is_whole = false;
    {
        std::ofstream stream(beside, std::ios::trunc);
        stream << cache.dump(2) << '\n';
        is_whole = static_cast<bool>(stream.flush());
    }
    if (is_whole && std::rename(beside.c_str(), file_.c_str()) == 0) return true;
    std::filesystem::remove(beside, failed);
    return false;
}

}  // namespace headrace::nvme
