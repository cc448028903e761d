// Chores: one thread that makes blocking calls (fdatasync, the small writes of a commit) in the
// order they were given, so that whoever asks for one need not wait. Each path of a store has one,
// and the syncs of a commit run side by side.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace headrace::nvme {

class Chores {
  public:
    Chores();
    ~Chores();  // what was given is done first
    Chores(const Chores&) = delete;
    Chores& operator=(const Chores&) = delete;

    // Any thread.
    void add(std::function<void()> chore);

  private:
    void work();

    std::mutex mutex_;
    std::condition_variable given_;
    std::deque<std::function<void()>> waiting_;
    bool is_closing_ = false;
    std::jthread thread_;  // last: joined first
};

}  // namespace headrace::nvme
