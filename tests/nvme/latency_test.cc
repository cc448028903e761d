// Goal: percentiles are true to a bucket, never too low, and differences add up. Method: every
// bucket's edges, and random latencies beside a sorted list of them.
#include "nvme/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace headrace::nvme {
namespace {

TEST(LatencyHistogram, EveryLatencyFallsIntoTheBucketThatEndsBehindIt) {
    EXPECT_EQ(LatencyHistogram::bucket_of(0), 0u);
    uint64_t begin = LatencyHistogram::shortest_ns;
    for (size_t bucket = 0; bucket < LatencyHistogram::bucket_count; bucket++) {
        const uint64_t end = LatencyHistogram::end_of_bucket_ns(bucket);
        EXPECT_GT(end, begin);
        EXPECT_LE(end - begin, begin / 8);
        EXPECT_EQ(LatencyHistogram::bucket_of(begin), bucket);
        EXPECT_EQ(LatencyHistogram::bucket_of(end - 1), bucket);
        begin = end;
    }
    EXPECT_EQ(begin, uint64_t{1} << 37);  // 137 s
    EXPECT_EQ(LatencyHistogram::bucket_of(~uint64_t{0}), LatencyHistogram::bucket_count - 1);
}

TEST(LatencyHistogram, PercentilesAgreeWithASortedList) {
    std::mt19937_64 random(7);
    std::lognormal_distribution<double> latency(std::log(3e6), 1.0);
    LatencyHistogram histogram;
    std::vector<uint64_t> sorted;
    for (int i = 0; i < 10'000; i++) {
        sorted.push_back(static_cast<uint64_t>(latency(random)));
        histogram.add(sorted.back());
    }
    std::ranges::sort(sorted);
    EXPECT_EQ(histogram.count(), sorted.size());
    EXPECT_EQ(histogram.max_ns(), sorted.back());
    for (const double percent : {0.01, 1.0, 50.0, 90.0, 99.0, 99.9}) {
        const auto rank = static_cast<size_t>(std::ceil(percent / 100 * 10'000));
        const auto exact = static_cast<double>(sorted[rank - 1]);
        const auto told = static_cast<double>(histogram.percentile_ns(percent));
        EXPECT_GE(told, exact) << percent;
        EXPECT_LE(told, exact * 1.125) << percent;
    }
    EXPECT_EQ(histogram.percentile_ns(100), sorted.back());
}

TEST(LatencyHistogram, WithoutRequestsAllIsZero) {
    const LatencyHistogram histogram;
    EXPECT_EQ(histogram.percentile_ns(50), 0u);
    EXPECT_EQ(histogram.max_ns(), 0u);
    EXPECT_EQ(histogram.mean_ns(), 0.0);
}

TEST(LatencyHistogram, ADifferenceHasOnlyWhatCameSince) {
    LatencyHistogram before;
    before.add(90'000'000);
    LatencyHistogram after = before;
    for (int i = 0; i < 10; i++) after.add(2'000'000);
    const LatencyHistogram since = after - before;
    EXPECT_EQ(since.count(), 10u);
    EXPECT_EQ(since.mean_ns(), 2e6);
    EXPECT_GE(since.max_ns(), 2'000'000u);
    EXPECT_LE(since.max_ns(), 2'250'000u) << "not the 90 ms of before";
    LatencyHistogram sum = before;
    sum += since;
    EXPECT_EQ(sum.count(), after.count());
    EXPECT_EQ(sum.max_ns(), after.max_ns());
    EXPECT_EQ(after - after, LatencyHistogram());
}

TEST(LatencyHistogramDeathTest, SubtractingWhatIsNotEarlierIsABug) {
    LatencyHistogram more;
    more.add(5000);
    EXPECT_DEATH(static_cast<void>(LatencyHistogram() - more), "CHECK failed");
}

}  // namespace
}  // namespace headrace::nvme
