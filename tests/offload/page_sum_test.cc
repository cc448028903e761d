// Goal: the sum of pages is that of the plain XXH3 of each, whatever instructions compute it, and
// ranges add up to the whole; a page that changed, moved or is missing changes it.
// Method: the hash compiled here, without a choice of instructions, over seeded bytes.
#include "offload/page_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "offload/units.h"

namespace headrace::offload {

namespace {

std::vector<std::byte> pages_of(size_t page_count) {
    std::mt19937 random(1);
    std::vector<std::byte> bytes(page_count * page_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

}  // namespace

TEST(PageSum, is_the_sum_of_the_plain_hashes) {
    const std::vector<std::byte> bytes = pages_of(5);
    uint64_t expected = 0;
    for (uint64_t page = 0; page < 5; ++page) {
        expected += XXH3_64bits_withSeed(bytes.data() + page * page_bytes, page_bytes, 7 + page);
    }
    EXPECT_EQ(page_sum(bytes, 7), expected);
    EXPECT_EQ(page_sum({}, 7), 0u);
}

TEST(PageSum, ranges_add_up_in_any_order) {
    const std::vector<std::byte> bytes = pages_of(5);
    const std::span<const std::byte> all(bytes);
    EXPECT_EQ(page_sum(all.subspan(2 * page_bytes), 2) + page_sum(all.first(2 * page_bytes), 0),
              page_sum(all));
}

TEST(PageSum, a_changed_swapped_or_missing_page_shows) {
    std::vector<std::byte> bytes = pages_of(3);
    const uint64_t sum = page_sum(bytes);
    EXPECT_NE(page_sum(std::span(bytes).first(2 * page_bytes)), sum);
    std::swap_ranges(bytes.begin(), bytes.begin() + page_bytes, bytes.begin() + page_bytes);
    EXPECT_NE(page_sum(bytes), sum);
    std::swap_ranges(bytes.begin(), bytes.begin() + page_bytes, bytes.begin() + page_bytes);
    EXPECT_EQ(page_sum(bytes), sum);
    bytes[4096 + 17] ^= std::byte{1};
    EXPECT_NE(page_sum(bytes), sum);
}

}  // namespace headrace::offload
