// Goal: over any time no more is written than the rate allows and a bounded credit, and no less
// where something waits. Method: a clock of our own, and writers that come early, late and
// together.
#include "nvme/write_limit.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace headrace::nvme {
namespace {

constexpr uint64_t second_ns = 1'000'000'000;
constexpr uint64_t start_ns = 50 * second_ns;

TEST(WriteLimit, TheRateIsKeptOverTime) {
    WriteLimit limit(1'000'000);  // 1 byte per us
    uint64_t at_ns = start_ns;
    uint64_t taken_bytes = 0;
    std::mt19937_64 random(3);
    while (at_ns < start_ns + 10 * second_ns) {
        const uint64_t size_bytes = 1 + random() % 10'000;
        if (limit.take(at_ns, size_bytes)) {
            taken_bytes += size_bytes;
        } else {
            at_ns = limit.free_at_ns() + random() % 3'000'000;  // wakes up to 3 ms late
        }
    }
    EXPECT_NEAR(static_cast<double>(taken_bytes), 10e6, 0.05e6);
}

TEST(WriteLimit, IdleTimeIsCreditWithinItsBound) {
    WriteLimit limit(1'000'000'000);  // 1 byte per ns
    ASSERT_TRUE(limit.take(start_ns, 1));
    uint64_t burst_bytes = 0;
    while (limit.take(start_ns + 100 * second_ns, 1'000'000)) burst_bytes += 1'000'000;
    EXPECT_GE(burst_bytes, WriteLimit::credit_ns_max);
    EXPECT_LE(burst_bytes, WriteLimit::credit_ns_max + 1'000'000);
}

TEST(WriteLimit, AWriteLargerThanASecondsWorthGoesAndIsOwedFor) {
    WriteLimit limit(1'000'000);
    ASSERT_TRUE(limit.take(start_ns, 5'000'000));
    EXPECT_FALSE(limit.take(start_ns + 4 * second_ns, 1));
    EXPECT_EQ(limit.free_at_ns(), start_ns + 5 * second_ns - WriteLimit::credit_ns_max);
    EXPECT_TRUE(limit.take(limit.free_at_ns(), 1));
}

// The paths of a store share one limit.
TEST(WriteLimit, ManyThreadsTakeNoMoreThanOne) {
    WriteLimit limit(1'000'000);
    std::atomic<uint64_t> taken_bytes = 0;
    std::vector<std::jthread> takers;
    for (int i = 0; i < 4; i++) {
        takers.emplace_back([&] {
            for (uint64_t ms = 0; ms < 1000; ms++) {
                if (limit.take(start_ns + ms * 1'000'000, 500)) taken_bytes += 500;
            }
        });
    }
    takers.clear();
    EXPECT_LE(taken_bytes, 1'000'000u + 20'000u + 500u);
    EXPECT_GE(taken_bytes, 500'000u);
}

}  // namespace
}  // namespace headrace::nvme
