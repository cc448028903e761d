// Goal: the logarithm is within 2 ulp everywhere, rounds to the nearest fp32, and says what it says
// of zero, infinity, negative numbers and NaN.
// Method: long double's logarithm as the truth: fp32 numbers of the whole positive range, densely;
// doubles around 1, around the edges of binades, and of random bits.
#include "kernels/host/natural_log.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace headrace::kernels {
namespace {

// |natural_log(x) - ln x| in units of the last place of ln x.
double error_ulp(double x) {
    const long double truth = std::log(static_cast<long double>(x));
    if (truth == 0) return natural_log(x) == 0 ? 0 : HUGE_VAL;
    const double unit = std::ldexp(1.0, std::ilogb(truth) - 52);
    return static_cast<double>(std::abs(static_cast<long double>(natural_log(x)) - truth)) / unit;
}

TEST(NaturalLog, OfEveryFp32IsTheNearestFp32) {
    constexpr uint32_t smallest_normal = 0x00800000, infinity = 0x7F800000;
    double error = 0;
    for (uint32_t bits = smallest_normal; bits < infinity; bits += 1009) {
        const double x = std::bit_cast<float>(bits);
        error = std::max(error, error_ulp(x));
        ASSERT_EQ(static_cast<float>(natural_log(x)),
                  static_cast<float>(std::log(static_cast<long double>(x))))
            << x;
    }
    EXPECT_LE(error, 2.0);
    EXPECT_GT(error, 0.4);  // something was measured
}

TEST(NaturalLog, OfDoublesIsWithinTwoUlp) {
    std::mt19937_64 random(11);
    double error = 0;
    for (int round = 0; round < 200'000; ++round) {
        const double fraction = static_cast<double>(random() >> 11) * 0x1p-53;  // [0, 1)
        const double any = std::bit_cast<double>(random() >> 1);
        const double near_one = 1.0 + (fraction - 0.5) * std::ldexp(1.0, -(round % 40));
        for (const double x : {0.5 + fraction, near_one, any}) {
            if (std::isnormal(x)) error = std::max(error, error_ulp(x));
        }
    }
    for (int exponent = -1022; exponent <= 1023; ++exponent) {
        for (const double m : {1.0, std::sqrt(0.5), std::sqrt(2.0)}) {
            for (const double x : {m, std::nextafter(m, 0.0), std::nextafter(m, 2.0)}) {
                const double scaled = std::ldexp(x, exponent);
                if (std::isnormal(scaled)) error = std::max(error, error_ulp(scaled));
            }
        }
    }
    EXPECT_LE(error, 2.0);
}

TEST(NaturalLog, OfWhatIsNoNumberOrNotPositive) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(natural_log(1.0), 0.0);
    EXPECT_EQ(natural_log(0.0), -infinity);
    EXPECT_EQ(natural_log(infinity), infinity);
    EXPECT_TRUE(std::isnan(natural_log(-1.0)));
    EXPECT_TRUE(std::isnan(natural_log(std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace headrace::kernels
