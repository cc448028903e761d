// WaitWatch: tells of waits. A *wait* is a stretch of a run in which nothing else is said: a load,
// a save, an evaluation, an export, a step. One that lasts is told of again and again, with what
// this process has moved to and from drives meanwhile, so that a slow drive and a run that stands
// still look different long before anybody ends the run for being silent. Nothing is ended here: a
// request to a drive that does not end is the store's watchdog's business (nvme/watchdog.h).
//
// One thread begins and ends waits, one at a time; `say` is called on a thread of this object's
// own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "nvme/process_io.h"

namespace headrace::engine {

inline constexpr std::chrono::seconds wait_told_every_default{30};

class WaitWatch {
  public:
    using Duration = std::chrono::nanoseconds;

    // told_every: more than 0 (CHECK). `say` gets one line and outlives the watch.
    WaitWatch(Duration told_every, std::function<void(const std::string& line)> say);
    ~WaitWatch();
    WaitWatch(const WaitWatch&) = delete;
    WaitWatch& operator=(const WaitWatch&) = delete;

    // From here on the run waits for `what` ("saving after step 3 of 8"); a wait before it is over.
    // The first line comes when it has lasted for `usual` and told_every longer: what is known to
    // take long is not told of before that.
    void begin(std::string what, Duration usual = Duration(0));
    void end();

  private:
    void watch();

    const Duration told_every_;
    const std::function<void(const std::string&)> say_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_closing_ = false;
    uint64_t number_ = 0;  // of the wait
    std::string what_;     // empty: there is none
    Duration usual_{};
    std::chrono::steady_clock::time_point began_;
    nvme::ProcessIo io_before_;
    std::jthread thread_;  // last: joined first
};

// "still saving after step 3 of 8: 61 s so far, 1.2 GiB written and 0 B read since it began", and,
// where nothing moved since the line before (`moved_before`), that nothing did for `told_every`.
std::string describe_wait(const std::string& what, double seconds, const nvme::ProcessIo& moved,
                          const nvme::ProcessIo& moved_before, double told_every_s);

}  // namespace headrace::engine
