// Goal: numbers for people have three digits that count, their thousands in threes and no exponent,
// at any size.
// Method: samples of each range and its ends; then thousands of sizes, read back.
#include "offload/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace headrace::offload {
namespace {

TEST(Numbers, HaveThreeDigitsThatCount) {
    EXPECT_EQ(format_number(0), "0");
    EXPECT_EQ(format_number(0.0114), "0.0114");
    EXPECT_EQ(format_number(0.12), "0.120");
    EXPECT_EQ(format_number(5.267), "5.27");
    EXPECT_EQ(format_number(9.996), "10.0");
    EXPECT_EQ(format_number(62), "62.0");
    EXPECT_EQ(format_number(99.96), "100");
    EXPECT_EQ(format_number(554.46), "554");
    EXPECT_EQ(format_number(999.9), "1,000");
    EXPECT_EQ(format_number(93412), "93,412");
    EXPECT_EQ(format_number(16777216), "16,777,216");
    EXPECT_EQ(format_number(-1234.5), "-1,234");
    EXPECT_EQ(format_number(-123), "-123");
    EXPECT_EQ(format_number(1e-20), "0");
}

TEST(Numbers, OfThingsAreWhole) {
    EXPECT_EQ(format_count(0), "0");
    EXPECT_EQ(format_count(3), "3");
    EXPECT_EQ(format_count(32768), "32,768");
    EXPECT_EQ(format_parameters(93'248), "93,248");
    EXPECT_EQ(format_parameters(134'515'008), "135 million");
    EXPECT_EQ(format_parameters(999'600'000), "1.00 billion");
    EXPECT_EQ(format_parameters(13'015'864'320), "13.0 billion");
}

TEST(Numbers, OfTimeHaveTheirUnit) {
    EXPECT_EQ(format_seconds(0), "0 s");
    EXPECT_EQ(format_seconds(5.72e-5), "57.2 us");
    EXPECT_EQ(format_seconds(0.0154), "15.4 ms");
    EXPECT_EQ(format_seconds(0.12), "0.120 s");
    EXPECT_EQ(format_seconds(62.2), "62.2 s");
    EXPECT_EQ(format_seconds(1130), "1,130 s");
    EXPECT_EQ(format_duration(0.00344), "3.44 ms");
    EXPECT_EQ(format_duration(119), "119 s");
    EXPECT_EQ(format_duration(750), "12.5 minutes");
    EXPECT_EQ(format_duration(62200), "17.3 hours");
    EXPECT_EQ(format_duration(3.6e7), "10,000 hours");
}

TEST(Numbers, NeverHaveAnExponentAndAreRight) {
    for (double value = 1.01e-9; value < 1e15; value *= 1.37) {
        std::string text = format_number(value);
        EXPECT_EQ(text.find('e'), std::string::npos) << text;
        std::erase(text, ',');
        EXPECT_NEAR(std::stod(text) / value, 1, 6e-3) << text;
    }
}

}  // namespace
}  // namespace headrace::offload
