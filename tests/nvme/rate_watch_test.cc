// Goal: a lasting change of a drive's rate is told once, and nothing else is.
// Method: made-up steps of a gigabyte.
#include "nvme/rate_watch.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::nvme {
namespace {

// Feeds rates (GB/s); the index of the step that told, or -1.
int told_at(RateWatch& watch, const std::vector<double>& rates) {
    int told = -1;
    for (size_t step = 0; step < rates.size(); step++) {
        if (!watch.add(1'000'000'000, 1 / rates[step])) continue;
        EXPECT_EQ(told, -1) << "told twice";
        told = static_cast<int>(step);
    }
    return told;
}

TEST(RateWatchTest, tells_once_when_the_rate_has_fallen_for_five_steps) {
    RateWatch watch;
    EXPECT_EQ(told_at(watch, {4, 4.4, 3.6, 4, 1.5, 1.4, 1.5, 1.6}), -1);
    EXPECT_NEAR(watch.started_bytes_per_s(), 4e9, 1e3);
    const auto change = watch.add(1'000'000'000, 1 / 1.5);
    ASSERT_TRUE(change.has_value());
    EXPECT_NEAR(change->started_bytes_per_s, 4e9, 1e3);
    EXPECT_NEAR(change->observed_bytes_per_s, 1.5e9, 1e3);
    EXPECT_EQ(told_at(watch, {1, 1, 1, 1, 1, 1, 9, 9, 9, 9, 9, 9}), -1) << "once";
}

TEST(RateWatchTest, a_rate_that_rises_is_told_too) {
    RateWatch watch;
    EXPECT_EQ(told_at(watch, {2, 2, 2, 3, 3, 3, 3, 3}), 7);
}

TEST(RateWatchTest, what_passes_or_is_small_or_swings_is_not_told) {
    RateWatch dips;
    EXPECT_EQ(told_at(dips, {4, 4, 4, 1, 1, 1, 1, 4, 1, 1, 1, 1, 4}), -1);
    RateWatch small;
    EXPECT_EQ(told_at(small, {4, 4, 4, 3, 3, 3, 3, 3, 3, 5, 5, 5, 5, 5, 5}), -1);
    RateWatch swings;
    EXPECT_EQ(told_at(swings, {4, 4, 4, 1, 1, 1, 9, 9, 9, 1, 1, 1, 9, 9, 9}), -1);
}

TEST(RateWatchTest, an_odd_first_step_and_idle_ones_do_not_count) {
    RateWatch watch;
    EXPECT_FALSE(watch.add(0, 0).has_value());
    EXPECT_FALSE(watch.add(0, 3).has_value());
    EXPECT_EQ(told_at(watch, {0.5, 4, 4, 4, 4, 4, 4, 4}), -1);
    EXPECT_NEAR(watch.started_bytes_per_s(), 4e9, 1e3);
}

}  // namespace
}  // namespace headrace::nvme
