// Goal: sizes are read and printed as people write them. Method: tables.
#include "offload/units.h"

#include <gtest/gtest.h>

namespace headrace::offload {
namespace {

TEST(Units, ReadsWhatPeopleWrite) {
    EXPECT_EQ(*parse_bytes("768MiB"), 768 * mib);
    EXPECT_EQ(*parse_bytes("4GiB"), 4 * gib);
    EXPECT_EQ(*parse_bytes("2.5 GB"), 2'500'000'000u);
    EXPECT_EQ(*parse_bytes("4096"), 4096u);
    EXPECT_EQ(*parse_bytes("1g"), gib);
}

TEST(Units, RefusesTheRestNamingIt) {
    for (const char* text : {"", "GiB", "-1", "3 parsecs", "1e30GiB"}) {
        const Result<uint64_t> size = parse_bytes(text);
        ASSERT_FALSE(size.ok()) << text;
        EXPECT_EQ(size.error().code, ErrorCode::usage);
        EXPECT_NE(size.error().what.find(text), std::string::npos);
    }
}

TEST(Units, PrintsThreeDigits) {
    EXPECT_EQ(format_bytes(512), "512 B");
    EXPECT_EQ(format_bytes(768 * mib), "768 MiB");
    EXPECT_EQ(format_bytes(3 * gib / 2), "1.50 GiB");
}

}  // namespace
}  // namespace headrace::offload
