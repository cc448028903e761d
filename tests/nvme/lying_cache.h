// LyingCache: the page cache of maps on the day that one fdatasync fails, as Linux does it. The
// pages that it was to write are called clean although they never reached the drive: reads still
// find them, every later fdatasync says that all is well, and once they are dropped a read finds
// what the drive had before.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "nvme/file_operations.h"
#include "offload/check.h"

namespace headrace::nvme {

class LyingCache {
  public:
    // Asked with the name and the content of a map that is to be made durable, until it says yes.
    using Fails = std::function<bool(const std::string& file, const std::string& content)>;
    explicit LyingCache(Fails fails) : fails_(std::move(fails)) {}
    LyingCache(const LyingCache&) = delete;

    // This object outlives whoever uses them.
    FileOperations operations() {
        FileOperations operations;
        operations.sync_data = [this](int descriptor) { return sync(descriptor); };
        operations.drop_pages = [this](int descriptor, uint64_t, uint64_t) {
            return drop(descriptor);
        };
        return operations;
    }
    bool has_failed() const { return has_failed_; }

    static bool holds_record(const std::string& content) {
        return content.find("HRCOMMIT") != std::string::npos;
    }

    // Of the file that is open.
    static std::string name_of(int descriptor) {
        std::error_code failure;
        const auto name =
            std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failure);
        return failure ? std::string() : name.string();
    }

  private:
    static struct stat facts_of(int descriptor) {
        struct stat facts {};
        CHECK_EQ(fstat(descriptor, &facts), 0);
        return facts;
    }
    static std::string content_of(int descriptor) {
        std::string content(static_cast<size_t>(facts_of(descriptor).st_size), '\0');
        const ssize_t count = pread(descriptor, content.data(), content.size(), 0);
        CHECK_EQ(count, static_cast<ssize_t>(content.size()));
        return content;
    }

    int sync(int descriptor) {
        const std::string name = name_of(descriptor);
        if (!name.ends_with("/map")) return 0;
        const std::lock_guard lock(mutex_);
        const ino_t inode = facts_of(descriptor).st_ino;
        if (lost_.contains(inode)) return 0;
        std::string content = content_of(descriptor);
        if (!has_failed_ && fails_(name, content)) {
            has_failed_ = true;
            lost_[inode] = durable_[inode];
            return -EIO;
        }
        durable_[inode] = std::move(content);
        return 0;
    }
    int drop(int descriptor) {
        const std::lock_guard lock(mutex_);
        const auto lost = lost_.find(facts_of(descriptor).st_ino);
        if (lost == lost_.end()) return 0;
        const std::string& content = lost->second;
        const ssize_t count = pwrite(descriptor, content.data(), content.size(), 0);
        CHECK_EQ(count, static_cast<ssize_t>(content.size()));
        lost_.erase(lost);
        return 0;
    }

    const Fails fails_;
    std::mutex mutex_;
    bool has_failed_ = false;
    std::map<ino_t, std::string> durable_;  // what the drive has, of each map
    std::map<ino_t, std::string> lost_;     // the same, of those whose cache says otherwise
};

}  // namespace headrace::nvme
