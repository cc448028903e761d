#include "engine/checkpoint/find_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/file.h"
#include "offload/check.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

namespace fs = std::filesystem;

constexpr uint64_t revision_bytes_max = 4096;

Error not_found(const std::string& text, const std::string& fault) {
    CHECK(!fault.empty());
    return Error{ErrorCode::bad_data, fmt::format("looking for the model {}: {}", text, fault), ""};
}

bool is_folder(const fs::path& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored);
}

// Also true for a link to nothing: opening it then says what is wrong.
bool has_config(const fs::path& folder) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(folder / "config.json", ignored));
}

std::string trimmed(std::string text) {
    const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
    while (!text.empty() && is_space(text.back())) text.pop_back();
    return text;
}

std::vector<std::string> folders_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        if (is_folder(entry->path())) names.push_back(entry->path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
}

// The snapshot that refs/main names; without it, the only one there is.
Result<std::string> resolve_cache_entry(const std::string& text, const fs::path& entry) {
    CHECK(!entry.empty());
    const std::vector<std::string> snapshots = folders_in(entry / "snapshots");
    if (snapshots.empty()) {
        return not_found(
            text, fmt::format("{} has no snapshot; download the model again", entry.string()));
    }
    std::string revision;
    const Result<std::string> main = read_text(entry / "refs" / "main", revision_bytes_max);
    if (main.ok()) {
        revision = trimmed(*main);
        if (std::find(snapshots.begin(), snapshots.end(), revision) == snapshots.end()) {
            return not_found(text,
                             fmt::format("{} names the revision {} in refs/main, which is "
                                         "not among its snapshots ({}); download it again or "
                                         "name a snapshot's folder",
                                         entry.string(), revision, fmt::join(snapshots, ", ")));
        }
    } else if (snapshots.size() == 1) {
        revision = snapshots.front();
    } else {
        return not_found(text,
                         fmt::format("{} has no refs/main and {} snapshots ({}); name one of "
                                     "their folders",
                                     entry.string(), snapshots.size(), fmt::join(snapshots, ", ")));
    }
    CHECK(!revision.empty());
    const fs::path snapshot = entry / "snapshots" / revision;
    if (!has_config(snapshot)) {
        return not_found(text, fmt::format("{} has no config.json: half a download; download the "
                                           "model again",
                                           snapshot.string()));
    }
    return snapshot.string();
}

Result<std::string> resolve_folder(const std::string& text, const fs::path& folder) {
    if (has_config(folder)) return folder.string();
    if (is_folder(folder / "snapshots")) return resolve_cache_entry(text, folder);
    return wrap(explain_missing_weights(folder),
                fmt::format("looking for the model {}: the folder has no config.json", text));
}

// "name" or "org/name", of letters, digits, '-', '_' and '.'.
bool is_hub_name(std::string_view text) {
    const auto is_allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.' || c == '/';
    };
    return !text.empty() && std::all_of(text.begin(), text.end(), is_allowed) &&
           std::count(text.begin(), text.end(), '/') <= 1 && text.front() != '/' &&
           text.back() != '/' && text.front() != '.' && text.find("/.") == std::string_view::npos;
}

}  // namespace

HubCache hub_cache_from(const ReadVariable& read_variable) {
    CHECK(read_variable != nullptr);
    struct Setting {
        const char* variable;
        const char* below;
    };
    constexpr Setting settings[] = {{"HF_HUB_CACHE", ""},
                                    {"HF_HOME", "hub"},
                                    {"XDG_CACHE_HOME", "huggingface/hub"},
                                    {"HOME", ".cache/huggingface/hub"}};
    for (const Setting& setting : settings) {
        const char* value = read_variable(setting.variable);
        if (value == nullptr || *value == '\0') continue;
        const fs::path folder =
            *setting.below == '\0' ? fs::path(value) : fs::path(value) / setting.below;
        return {.folder = folder.string(), .chosen_by = setting.variable};
    }
    return {};
}

Result<std::string> find_model(const std::string& text, const HubCache& cache) {
    CHECK_EQ(cache.folder.empty(), cache.chosen_by.empty());
    if (text.empty()) return not_found("''", "no model is named");
    if (is_folder(text)) return resolve_folder(text, text);
    std::error_code error;
    if (fs::exists(text, error)) {
        const fs::path parent = fs::path(text).parent_path();
        return not_found(text, fmt::format("it is a file; name the folder that holds config.json "
                                           "and model.safetensors{}{}",
                                           parent.empty() ? "" : ", perhaps ", parent.string()));
    }
    std::string looked_at = fmt::format("there is no folder {}", text);
    if (is_hub_name(text) && !cache.folder.empty()) {
        std::string entry_name = "models--" + text;
        if (const size_t slash = entry_name.find('/'); slash != std::string::npos) {
            entry_name.replace(slash, 1, "--");
        }
        CHECK_EQ(entry_name.find('/'), std::string::npos);  // it cannot leave the cache
        const fs::path entry = fs::path(cache.folder) / entry_name;
        if (is_folder(entry)) return resolve_cache_entry(text, entry);
        looked_at += fmt::format(", and no {} (the hub cache is chosen by {})", entry.string(),
                                 cache.chosen_by);
    }
    return not_found(text, looked_at +
                               "; nothing is downloaded here: download the model first "
                               "(hf download ORG/NAME), or name a folder");
}

}  // namespace headrace::engine
