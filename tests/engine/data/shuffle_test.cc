// Goal: one order per seed and epoch, the same on every machine, and no order likelier than
// another. Method: numbers of the published SplitMix64, an order written down once, all 24 orders
// of 4 counted over many seeds.
#include "engine/data/shuffle.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

namespace headrace::engine {
namespace {

using ::testing::ElementsAre;

TEST(ShuffleTest, the_numbers_never_change) {
    // mix(0) = 0xE220A8397B1DCDAF is the first output of SplitMix64 with seed 0.
    EXPECT_EQ(random_bits(0, 0, 0), 0x238275BC38FCBE91u);
    EXPECT_EQ(random_bits(42, 1, 7), 0xD5755CF05C9C2237u);
    EXPECT_NE(random_bits(0, 1, 0), random_bits(0, 0, 1));
}

TEST(ShuffleTest, the_order_never_changes) {
    EXPECT_THAT(shuffled_order(8, {.seed = 42, .epoch = 0}), ElementsAre(7, 6, 2, 1, 0, 5, 4, 3));
    EXPECT_THAT(shuffled_order(8, {.seed = 42, .epoch = 1}), ElementsAre(0, 7, 6, 4, 3, 5, 2, 1));
    EXPECT_THAT(shuffled_order(8, {.seed = 43, .epoch = 0}), ElementsAre(6, 7, 1, 5, 0, 2, 3, 4));
}

TEST(ShuffleTest, every_sample_comes_once) {
    for (const uint32_t count : {0u, 1u, 2u, 3u, 1000u}) {
        std::vector<uint32_t> order = shuffled_order(count, {.seed = 5, .epoch = 3});
        std::ranges::sort(order);
        ASSERT_EQ(order.size(), count);
        for (uint32_t i = 0; i < count; ++i) EXPECT_EQ(order[i], i);
    }
}

TEST(ShuffleTest, every_order_is_equally_likely) {
    constexpr int draw_count = 24'000;
    std::map<std::vector<uint32_t>, int> seen;
    for (int seed = 0; seed < draw_count; ++seed) {
        ++seen[shuffled_order(4, {.seed = static_cast<uint64_t>(seed), .epoch = 9})];
    }
    EXPECT_EQ(seen.size(), 24u);
    double chi_square = 0;  // 23 degrees of freedom: above 50 once in a thousand
    for (const auto& [order, count] : seen)
        chi_square += (count - 1000.0) * (count - 1000.0) / 1000;
    EXPECT_LT(chi_square, 50);
}

}  // namespace
}  // namespace headrace::engine
