// Goal: HANG-1: what takes long is told of, what is quick is not, and a line tells a slow drive
// from one that moves nothing. Method: a watch that tells every 20 ms, and waits of many times
// that; the words of given counts.
#include "engine/train/wait_watch.h"

#include <gmock/gmock.h>

#include <vector>

#include "offload/units.h"

namespace headrace::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr milliseconds told_every(20);

class Lines {
  public:
    std::function<void(const std::string&)> taker() {
        return [this](const std::string& line) {
            std::lock_guard lock(mutex_);
            lines_.push_back(line);
        };
    }
    std::vector<std::string> take() {
        std::lock_guard lock(mutex_);
        return std::exchange(lines_, {});
    }
    // Until there are so many; a test that waits in vain is ended from outside.
    void wait_for(size_t count) {
        for (;;) {
            {
                std::lock_guard lock(mutex_);
                if (lines_.size() >= count) return;
            }
            std::this_thread::sleep_for(milliseconds(1));
        }
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

TEST(WaitWatch, hang_1_a_long_wait_is_told_of_again_and_again_until_it_ends) {
    Lines lines;
    WaitWatch waits(told_every, lines.taker());
    waits.begin("saving after step 3 of 8");
    lines.wait_for(3);
    waits.end();
    for (const std::string& line : lines.take()) {
        EXPECT_THAT(line, StartsWith("still saving after step 3 of 8: "));
    }
    std::this_thread::sleep_for(4 * told_every);
    EXPECT_LE(lines.take().size(), 1u);  // one may have been on its way
    EXPECT_TRUE(lines.take().empty());
}

TEST(WaitWatch, quick_and_usual_waits_are_not_told_of) {
    Lines lines;
    WaitWatch waits(std::chrono::minutes(1), lines.taker());
    for (int i = 0; i < 100; ++i) waits.begin("loading the model");
    waits.end();
    EXPECT_TRUE(lines.take().empty());
    WaitWatch steps(told_every, lines.taker());
    steps.begin("in step 1 of 2", std::chrono::hours(1));
    std::this_thread::sleep_for(3 * told_every);
    EXPECT_TRUE(lines.take().empty());
    steps.begin("in step 2 of 2");  // ends that one
    lines.wait_for(1);
    EXPECT_THAT(lines.take().front(), StartsWith("still in step 2 of 2: "));
}

TEST(WaitWatch, a_watch_ends_at_once_in_a_wait_and_outside) {
    for (const bool waits_for_something : {false, true}) {
        Lines lines;
        const auto began = std::chrono::steady_clock::now();
        {
            WaitWatch waits(std::chrono::hours(1), lines.taker());
            if (waits_for_something) waits.begin("loading the model");
        }
        EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
        EXPECT_TRUE(lines.take().empty());
    }
}

TEST(WaitWatch, the_words_tell_a_slow_drive_from_one_that_stands_still) {
    const nvme::ProcessIo before{.read_bytes = 0, .written_bytes = offload::gib, .is_known = true};
    const nvme::ProcessIo after{
        .read_bytes = offload::mib, .written_bytes = 2 * offload::gib, .is_known = true};
    EXPECT_EQ(describe_wait("saving", 61, after, before, 30),
              "still saving: 61.0 s so far, 2.00 GiB written and 1.00 MiB read since it began");
    EXPECT_THAT(describe_wait("saving", 91, after, after, 30),
                HasSubstr("; no drive has moved anything for 30.0 s"));
    EXPECT_EQ(describe_wait("saving", 61, {}, {}, 30), "still saving: 61.0 s so far");
}

}  // namespace
}  // namespace headrace::engine
