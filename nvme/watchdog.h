// Watchdog: one thread that asks what is oldest in flight, sleeps until that is nearly too old, and
// asks again. So it wakes about once per stuck_after, and yet tells of a request that never
// completes at the moment it becomes too old.
//
// A request that is stuck cannot be taken back: the kernel owns its memory, and a call in the
// kernel cannot be ended. So nothing is unmapped, no destructor is run into, and the process ends
// by _exit. What it has to say must be said before that: with a flush under way even _exit waits
// for the drive.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "offload/result.h"

namespace headrace::nvme {

// What is in flight on a path, in the words of the schedule. Empty strings: not one of these.
struct Pending {
    std::string_view lane;  // nvme_read, nvme_write
    std::string_view op;    // fetch, evict, sync, record, seal
    std::string place;      // of a fetch or evict
    std::string path;       // the file
    uint64_t offset_bytes = 0;
    uint64_t size_bytes = 0;  // of a fetch or evict
    uint64_t started_ns = 0;
};

// "the nvme_write lane is stuck: evict of the place 'hi layers.0/0', 1048576 bytes at offset 4096
// of FILE, has not ended for 300.2 s: ...", with likely cause and remedy.
std::string describe_stuck(const Pending& pending, uint64_t age_ns);

class Watchdog {
  public:
    // `oldest` and `on_stuck` are called on the watchdog's thread; on_stuck at most once, and
    // nothing is watched after it. Both outlive the watchdog. stuck_after_ns: 8 to 3e18 (CHECK).
    Watchdog(uint64_t stuck_after_ns, std::function<std::optional<Pending>()> oldest,
             std::function<void(std::string)> on_stuck);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    void watch();

    const uint64_t stuck_after_ns_;
    const std::function<std::optional<Pending>()> oldest_;
    const std::function<void(std::string)> on_stuck_;
    std::mutex mutex_;
    std::condition_variable ended_;
    bool is_ending_ = false;
    std::jthread thread_;  // last: joined first
};

}  // namespace headrace::nvme
