// Goal: the first signal is remembered and ends nothing, the second one ends the process, and a
// job that was started to ignore signals goes on ignoring them.
// Method: signals raised in this process; the deadly one in a forked child.
#include "engine/cli/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>

namespace headrace::engine {
namespace {

TEST(StopSignalTest, the_first_signal_is_remembered) {
    for (const int number : {SIGINT, SIGTERM}) {
        const StopSignal stop;
        EXPECT_EQ(stop.number(), 0);
        ASSERT_EQ(std::raise(number), 0);
        EXPECT_EQ(stop.number(), number);
    }
}

TEST(StopSignalDeathTest, the_second_signal_ends_the_process) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const StopSignal stop;
            std::raise(SIGINT);
            std::raise(SIGINT);
        },
        ::testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignalTest, a_file_size_limit_is_an_error_and_no_end) {
    auto* const before = std::signal(SIGXFSZ, SIG_DFL);
    survive_file_size_limits();
    ASSERT_EQ(std::raise(SIGXFSZ), 0);  // and the process lives
    EXPECT_EQ(std::signal(SIGXFSZ, before), SIG_IGN);
}

TEST(StopSignalTest, what_was_ignored_stays_ignored) {
    ASSERT_NE(std::signal(SIGINT, SIG_IGN), SIG_ERR);
    {
        const StopSignal stop;
        ASSERT_EQ(std::raise(SIGINT), 0);
        EXPECT_EQ(stop.number(), 0);
    }
    EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace headrace::engine
