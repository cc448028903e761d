#include "engine/checkpoint/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "offload/check.h"

namespace headrace::engine {

using offload::Error;
using offload::Result;
using offload::Status;

namespace {

namespace fs = std::filesystem;

constexpr mode_t folder_mode = 0777;  // less the process's umask
constexpr const char* staging_ending = ".partial-";
constexpr int staging_name_count = 100;  // tries before giving up

// Absolute, and ending in the folder's own name: "a/b/" and "a/b" are the same folder, and "." has
// a name too.
std::string with_own_name(const std::string& path) {
    std::error_code error;
    fs::path clean = fs::absolute(path, error);
    if (!clean.has_filename()) clean = clean.parent_path();
    if (clean.filename() == "." || clean.filename() == "..") {
        const fs::path canonical = fs::canonical(clean, error);
        if (!error) clean = canonical;
    }
    return clean.empty() ? path : clean.string();
}

std::string parent_of(const std::string& path) {
    const fs::path parent = fs::path(path).parent_path();
    return parent.empty() ? "." : parent.string();
}

// "out.partial-123" and "out.partial-123-1" beside out.
bool is_staging_name(const std::string& name, const std::string& target_name) {
    const std::string begin = target_name + staging_ending;
    return name.size() > begin.size() && name.starts_with(begin) &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin.size()), name.end(),
                       [](unsigned char c) { return std::isdigit(c) != 0 || c == '-'; });
}

// What kills left beside the target. What cannot be removed stays: it is in nobody's way.
void remove_left_behind(const std::string& target) {
    std::error_code ignored;
    const std::string name = fs::path(target).filename();
    for (const fs::directory_entry& entry : fs::directory_iterator(parent_of(target), ignored)) {
        if (!is_staging_name(entry.path().filename(), name)) continue;
        const LockedFolder locked = lock_folder(entry.path());
        if (locked.error == 0) fs::remove_all(entry.path(), ignored);
    }
}

}  // namespace

StagingFolder::StagingFolder(std::string target, std::vector<std::string> made_parents)
    : target_(std::move(target)), made_parents_(std::move(made_parents)) {}

StagingFolder::StagingFolder(StagingFolder&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      made_parents_(std::exchange(other.made_parents_, {})) {}

StagingFolder& StagingFolder::operator=(StagingFolder&& other) noexcept {
    std::swap(target_, other.target_);
    std::swap(path_, other.path_);
    std::swap(lock_, other.lock_);
    std::swap(made_parents_, other.made_parents_);
    return *this;
}

StagingFolder::~StagingFolder() {
    std::error_code ignored;  // there is nobody left to tell
    if (!path_.empty()) fs::remove_all(path_, ignored);
    for (auto parent = made_parents_.rbegin(); parent != made_parents_.rend(); ++parent) {
        ::rmdir(parent->c_str());  // refuses when another put something there
    }
}

Result<StagingFolder> StagingFolder::create(const std::string& target) {
    CHECK(!target.empty());
    const std::string clean = with_own_name(target);
    StagingFolder staging(clean, {});
    std::vector<std::string> missing;  // innermost first
    std::error_code error;
    for (std::string parent = parent_of(clean);
         !fs::exists(parent, error) && parent != parent_of(parent); parent = parent_of(parent)) {
        if (error) return system_error(fmt::format("looking for {}", parent), error.value());
        missing.push_back(parent);
    }
    for (auto parent = missing.rbegin(); parent != missing.rend(); ++parent) {
        if (::mkdir(parent->c_str(), folder_mode) != 0) {
            return system_error(fmt::format("making the folder {}", *parent), errno);
        }
        staging.made_parents_.push_back(*parent);
    }
    remove_left_behind(clean);
    for (int attempt = 0; attempt < staging_name_count; ++attempt) {
        const std::string path = fmt::format("{}{}{}{}", clean, staging_ending, ::getpid(),
                                             attempt == 0 ? "" : fmt::format("-{}", attempt));
        if (::mkdir(path.c_str(), folder_mode) == 0) {
            LockedFolder locked = lock_folder(path);
            // Somebody took it for one that was left behind, just before it was locked.
            if (locked.error == EWOULDBLOCK || locked.error == ENOENT) continue;
            if (locked.error == 0 && !fs::exists(path, error)) continue;
            staging.path_ = path;
            staging.lock_ = std::move(locked.descriptor);
            CHECK_EQ(parent_of(path), parent_of(clean));  // one file system: a rename is enough
            return staging;
        }
        if (errno != EEXIST) break;
    }
    return system_error(
        fmt::format("making a folder beside {}; choose a place that is writable", clean), errno);
}

Status StagingFolder::publish() {
    CHECK(!path_.empty());
    CHECK_NE(path_, target_);
    Status status = sync_folder(path_);
    if (!status.ok()) return status;
    // An absent or empty target is taken by a plain rename; a filled one is exchanged, then what
    // was there, now under the staging name, is removed.
    bool is_done = ::rename(path_.c_str(), target_.c_str()) == 0;
    if (!is_done && (errno == ENOTEMPTY || errno == EEXIST)) {
        is_done =
            ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0;
        if (is_done) {
            std::error_code error;
            fs::remove_all(path_, error);
            if (error) {
                status = system_error(
                    fmt::format("removing the earlier {}, now named {}", target_, path_),
                    error.value());
            }
        }
    }
    if (!is_done) {
        return system_error(fmt::format("renaming {} to {}; remove the earlier folder by hand or "
                                        "choose another",
                                        path_, target_),
                            errno);
    }
    path_.clear();
    lock_ = Descriptor();
    made_parents_.clear();
    if (!status.ok()) return status;
    return sync_folder(parent_of(target_));
}

}  // namespace headrace::engine
