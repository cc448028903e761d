// Goal: a sum has the same bits for any order and any grouping of its terms, and its double is the
// one nearest to the true sum.
// Method: seeded terms over the whole range of double in shuffled orders and random groups; sums of
// integers against 128-bit arithmetic; terms that half-way cases and carries are made of.
#include "offload/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace headrace::offload {

namespace {

constexpr double denormal = std::numeric_limits<double>::denorm_min();
constexpr double largest = std::numeric_limits<double>::max();

ExactSum sum_of(const std::vector<double>& terms) {
    ExactSum sum;
    for (const double term : terms) sum.add(term);
    return sum;
}

// Any finite double that is not negative, all exponents alike.
std::vector<double> any_doubles(size_t term_count, std::mt19937_64* random) {
    std::vector<double> terms(term_count);
    for (double& term : terms) {
        uint64_t bits = (*random)() >> 1;
        while (!std::isfinite(std::bit_cast<double>(bits))) bits = (*random)() >> 1;
        term = std::bit_cast<double>(bits);
    }
    return terms;
}

}  // namespace

TEST(ExactSum, every_double_alone_comes_back) {
    std::mt19937_64 random(1);
    for (const double term : any_doubles(20000, &random))
        EXPECT_EQ(sum_of({term}).to_double(), term);
    for (const double term : {0.0, denormal, 3 * denormal, 0x1p-1022, 0x1p-1022 - denormal, 1.0,
                              0x1.fffffffffffffp0, largest, 0x1p-1021, 0x1p-1011, 0x1p-958}) {
        EXPECT_EQ(sum_of({term}).to_double(), term);
    }
    EXPECT_EQ(ExactSum().to_double(), 0.0);
    EXPECT_EQ(sum_of({-0.0}), ExactSum());
}

TEST(ExactSum, order_does_not_matter) {
    std::mt19937_64 random(2);
    for (int round = 0; round < 20; ++round) {
        std::vector<double> terms = any_doubles(200, &random);
        const ExactSum expected = sum_of(terms);
        std::shuffle(terms.begin(), terms.end(), random);
        EXPECT_EQ(sum_of(terms), expected);
        std::sort(terms.begin(), terms.end());
        EXPECT_EQ(sum_of(terms), expected);
    }
}

TEST(ExactSum, grouping_does_not_matter) {
    std::mt19937_64 random(3);
    const std::vector<double> terms = any_doubles(500, &random);
    for (size_t group_count = 1; group_count < 12; ++group_count) {
        std::vector<ExactSum> groups(group_count);
        for (const double term : terms) groups[random() % group_count].add(term);
        while (groups.size() > 1) {
            const size_t target = random() % (groups.size() - 1);
            groups[target].merge(groups.back());
            groups.pop_back();
        }
        EXPECT_EQ(groups[0], sum_of(terms));
    }
}

TEST(ExactSum, merging_with_itself_doubles) {
    ExactSum sum = sum_of({1.0, 0x1p-60, 3e200});
    const ExactSum twice = sum_of({1.0, 1.0, 0x1p-60, 0x1p-60, 3e200, 3e200});
    sum.merge(sum);
    EXPECT_EQ(sum, twice);
}

__extension__ typedef unsigned __int128 Wide;  // not ISO C++; gcc and clang have it

// Terms are integers below 2^100 times 2^-50, so that the true sum fits a 128-bit integer, whose
// conversion to double is rounded to nearest even by the compiler's library.
TEST(ExactSum, is_rounded_once_to_the_nearest) {
    std::mt19937_64 random(4);
    for (int round = 0; round < 2000; ++round) {
        Wide expected = 0;
        ExactSum sum;
        const int term_count = 1 + static_cast<int>(random() % 40);
        for (int i = 0; i < term_count; ++i) {
            const uint64_t mantissa = random() >> 11;
            const int shift = static_cast<int>(random() % 48);
            expected += static_cast<Wide>(mantissa) << shift;
            sum.add(std::ldexp(static_cast<double>(mantissa), shift - 50));
        }
        EXPECT_EQ(sum.to_double(), std::ldexp(static_cast<double>(expected), -50));
    }
}

TEST(ExactSum, ties_go_to_even_and_a_crumb_decides) {
    EXPECT_EQ(sum_of({1.0, 0x1p-53}).to_double(), 1.0);
    EXPECT_EQ(sum_of({1.0, 0x1p-53, denormal}).to_double(), 1.0 + 0x1p-52);
    EXPECT_EQ(sum_of({1.0 + 0x1p-52, 0x1p-53}).to_double(), 1.0 + 0x1p-51);
    EXPECT_EQ(sum_of({0x1.fffffffffffffp0, 0x1p-53}).to_double(), 2.0);
    EXPECT_EQ(sum_of({0x1p-1022 - denormal, denormal}).to_double(), 0x1p-1022);
}

TEST(ExactSum, carries_run_through_many_words) {
    // 1 - 2^-1074 in binary is a thousand ones; the last crumb turns them all over.
    ExactSum sum;
    for (int exponent = -1; exponent >= -1074; --exponent) sum.add(std::ldexp(1.0, exponent));
    EXPECT_EQ(sum.to_double(), 1.0);
    EXPECT_NE(sum, sum_of({1.0}));
    sum.add(denormal);
    EXPECT_EQ(sum, sum_of({1.0}));
}

TEST(ExactSum, beyond_the_largest_double_is_infinite_and_still_exact) {
    const ExactSum sum = sum_of({largest, largest, largest, 1.0});
    EXPECT_TRUE(std::isinf(sum.to_double()));
    EXPECT_NE(sum, sum_of({largest, largest, largest}));
    EXPECT_EQ(sum_of({largest, denormal}).to_double(), largest);
}

TEST(ExactSumDeathTest, refuses_what_it_cannot_hold) {
    ExactSum sum;
    EXPECT_DEATH(sum.add(-1.0), "term");
    EXPECT_DEATH(sum.add(std::numeric_limits<double>::infinity()), "finite");
    EXPECT_DEATH(sum.add(std::numeric_limits<double>::quiet_NaN()), "finite");
}

}  // namespace headrace::offload
