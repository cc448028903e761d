#include "nvme/watchdog.h"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "nvme/clock.h"
#include "offload/check.h"

namespace headrace::nvme {

namespace {

// A hundred years; keeps sums of times in their type.
constexpr uint64_t stuck_after_ns_max = 100ull * 366 * 86400 * 1'000'000'000;

// The last part of the wait is a look at the same request again: a process that was stopped
// (Ctrl-Z, a debugger) finds requests that are old, and ended long ago once their thread gets to
// run.
constexpr uint64_t confirm_part = 8;

}  // namespace

std::string describe_stuck(const Pending& pending, uint64_t age_ns) {
    CHECK(!pending.lane.empty());
    CHECK(!pending.op.empty());
    CHECK(!pending.path.empty());
    std::string object = fmt::format("{} of {}", pending.op, pending.path);
    if (pending.size_bytes > 0) {
        object = fmt::format("{} of the place '{}', {} bytes at offset {} of {},", pending.op,
                             pending.place, pending.size_bytes, pending.offset_bytes, pending.path);
    }
    return fmt::format(
        "the {} lane is stuck: {} has not ended for {:.1f} s: the drive, its link or its server "
        "does not answer: see dmesg and smartctl, and whether something throttles it (io.max, a "
        "snapshot); the last commit is as it was: mend it or use another drive, then start again",
        pending.lane, object, static_cast<double>(age_ns) / 1e9);
}

Watchdog::Watchdog(uint64_t stuck_after_ns, std::function<std::optional<Pending>()> oldest,
                   std::function<void(std::string)> on_stuck)
    : stuck_after_ns_(stuck_after_ns), oldest_(std::move(oldest)), on_stuck_(std::move(on_stuck)) {
    CHECK_GE(stuck_after_ns_, confirm_part);
    CHECK_LE(stuck_after_ns_, stuck_after_ns_max);
    CHECK(oldest_ != nullptr);
    CHECK(on_stuck_ != nullptr);
    thread_ = std::jthread([this] { watch(); });
}

Watchdog::~Watchdog() {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
    ended_.notify_one();
}

void Watchdog::watch() {
    const uint64_t confirm_ns = stuck_after_ns_ / confirm_part;
    const uint64_t suspect_after_ns = stuck_after_ns_ - confirm_ns;
    uint64_t suspect_ns = 0;  // when the request began that was too old at the last look
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
        const std::optional<Pending> oldest = oldest_();
        const uint64_t at_ns = now_ns();
        // What begins from here on is not too old before the next look.
        const uint64_t since_ns = oldest ? oldest->started_ns : at_ns;
        const bool is_same = oldest && since_ns == suspect_ns;
        if (is_same && since_ns + stuck_after_ns_ <= at_ns) {
            lock.unlock();  // on_stuck may take its time, or never return
            on_stuck_(describe_stuck(*oldest, at_ns - since_ns));
            return;
        }
        uint64_t next_ns = since_ns + suspect_after_ns;
        if (next_ns <= at_ns) {
            suspect_ns = since_ns;
            next_ns = at_ns + confirm_ns;
        }
        CHECK_GT(next_ns, at_ns);
        ended_.wait_until(lock,
                          std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next_ns)));
    }
}

}  // namespace headrace::nvme
