#include "engine/train/wait_watch.h"

#include <fmt/format.h>

#include <utility>

#include "offload/check.h"
#include "offload/numbers.h"
#include "offload/units.h"

namespace headrace::engine {

using Clock = std::chrono::steady_clock;

WaitWatch::WaitWatch(Duration told_every, std::function<void(const std::string&)> say)
    : told_every_(told_every), say_(std::move(say)) {
    CHECK_GT(told_every_.count(), 0);
    CHECK(say_ != nullptr);
    thread_ = std::jthread([this] { watch(); });
}

WaitWatch::~WaitWatch() {
    {
        std::lock_guard lock(mutex_);
        is_closing_ = true;
    }
    changed_.notify_all();
}

void WaitWatch::begin(std::string what, Duration usual) {
    CHECK(!what.empty());
    CHECK_GE(usual.count(), 0);
    const nvme::ProcessIo io_before = nvme::read_process_io();
    {
        std::lock_guard lock(mutex_);
        ++number_;
        what_ = std::move(what);
        usual_ = usual;
        began_ = Clock::now();
        io_before_ = io_before;
    }
    changed_.notify_all();
}

void WaitWatch::end() {
    {
        std::lock_guard lock(mutex_);
        ++number_;
        what_.clear();
    }
    changed_.notify_all();
}

void WaitWatch::watch() {
    std::unique_lock lock(mutex_);
    while (!is_closing_) {
        const uint64_t number = number_;
        const auto is_over = [&] { return is_closing_ || number_ != number; };
        if (what_.empty()) {
            changed_.wait(lock, is_over);
            continue;
        }
        nvme::ProcessIo moved_before;
        Duration due = usual_ + told_every_;
        while (!changed_.wait_until(lock, began_ + due, is_over)) {
            const nvme::ProcessIo moved = nvme::read_process_io() - io_before_;
            const std::string line = describe_wait(
                what_, std::chrono::duration<double>(Clock::now() - began_).count(), moved,
                moved_before, std::chrono::duration<double>(told_every_).count());
            moved_before = moved;
            due += told_every_;
            lock.unlock();  // who begins the next wait need not wait for a terminal
            say_(line);
            lock.lock();
        }
    }
}

std::string describe_wait(const std::string& what, double seconds, const nvme::ProcessIo& moved,
                          const nvme::ProcessIo& moved_before, double told_every_s) {
    CHECK(!what.empty());
    CHECK_GE(seconds, 0.0);
    std::string line = fmt::format("still {}: {} so far", what, offload::format_seconds(seconds));
    if (!moved.is_known) return line;
    line += fmt::format(", {} written and {} read since it began",
                        offload::format_bytes(moved.written_bytes),
                        offload::format_bytes(moved.read_bytes));
    if (moved.written_bytes + moved.read_bytes ==
        moved_before.written_bytes + moved_before.read_bytes) {
        line += fmt::format("; no drive has moved anything for {}",
                            offload::format_seconds(told_every_s));
    }
    return line;
}

}  // namespace headrace::engine
