// What the tests of this folder share: a folder that goes away, page-aligned memory with a pattern,
// small mounts (root only), and work done in a child process whose limits may be ruined.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "offload/check.h"
#include "offload/store.h"
#include "offload/units.h"

namespace headrace::nvme {

class TempFolder {
  public:
    explicit TempFolder(const std::string& parent = testing::TempDir()) {
        std::string name = parent + "/headrace_test_XXXXXX";
        CHECK(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    TempFolder(const TempFolder&) = delete;
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }

    std::string make(const std::string& name) const {
        std::filesystem::create_directory(path_ + "/" + name);
        return path_ + "/" + name;
    }

  private:
    std::string path_;
};

// A tmpfs of its own; ok() is false where this user may not mount.
class TempMount {
  public:
    TempMount(const std::string& path, const std::string& options, unsigned long flags = 0)
        : path_(path), is_ok_(mount("tmpfs", path.c_str(), "tmpfs", flags, options.c_str()) == 0) {}
    TempMount(const TempMount&) = delete;
    ~TempMount() {
        if (is_ok_) umount2(path_.c_str(), MNT_DETACH);
    }
    bool ok() const { return is_ok_; }

  private:
    std::string path_;
    bool is_ok_;
};

class PageBuffer {
  public:
    explicit PageBuffer(uint64_t size_bytes)
        : bytes_(static_cast<std::byte*>(aligned_alloc(offload::page_bytes, size_bytes))),
          size_bytes_(size_bytes) {
        CHECK(bytes_ != nullptr);
        fill(0xEE);
    }
    PageBuffer(const PageBuffer&) = delete;
    PageBuffer(PageBuffer&& other) noexcept
        : bytes_(std::exchange(other.bytes_, nullptr)), size_bytes_(other.size_bytes_) {}
    ~PageBuffer() { free(bytes_); }

    std::span<std::byte> span() const { return {bytes_, size_bytes_}; }
    std::span<std::byte> first(uint64_t size_bytes) const { return span().first(size_bytes); }

    void fill(uint8_t value) const { std::ranges::fill(span(), std::byte{value}); }
    // Different at every 8 bytes, and for every seed.
    void fill_random(uint64_t seed) const {
        std::mt19937_64 random(seed);
        for (uint64_t i = 0; i + 8 <= size_bytes_; i += 8) {
            const uint64_t word = random();
            std::memcpy(bytes_ + i, &word, 8);
        }
    }
    bool operator==(const PageBuffer& other) const {
        return std::ranges::equal(span(), other.span());
    }

  private:
    std::byte* bytes_;
    uint64_t size_bytes_;
};

inline bool is_all(std::span<const std::byte> bytes, uint8_t value) {
    return std::ranges::all_of(bytes, [value](std::byte byte) { return byte == std::byte{value}; });
}

// Counts completions and keeps the first error.
class Waiter {
  public:
    std::function<void(offload::Status)> done() {
        return [this](offload::Status status) {
            std::lock_guard lock(mutex_);
            count_++;
            if (!status.ok() && error_.empty()) error_ = status.error().text();
            changed_.notify_all();
        };
    }
    void wait_for(uint64_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return count_ >= count; });
    }
    uint64_t count() {
        std::lock_guard lock(mutex_);
        return count_;
    }
    std::string error() {
        std::lock_guard lock(mutex_);
        return error_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t count_ = 0;
    std::string error_;
};

// Runs `work` in a forked child and returns what it returned, 1 to 100; more: it died of a signal.
// The child must not use gtest. Call while no store is open: its threads do not come along.
inline int run_in_child(const std::function<int()>& work) {
    const pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) _exit(work());
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

inline offload::Status write_place(offload::Store& store, offload::PlaceId place,
                                   std::span<std::byte> memory) {
    return transfer_and_wait(store, offload::Direction::write, place, memory);
}
inline offload::Status read_place(offload::Store& store, offload::PlaceId place,
                                  std::span<std::byte> memory) {
    return transfer_and_wait(store, offload::Direction::read, place, memory);
}

}  // namespace headrace::nvme
