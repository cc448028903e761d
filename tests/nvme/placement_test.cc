// Goal: every byte of every copy has one address, no two share one, and the paths get their share.
// Method: the worked example of FORMAT.md, and random places over random weights.
#include "nvme/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "offload/units.h"

namespace headrace::nvme {
namespace {

using offload::kib;
using offload::mib;
using offload::page_bytes;
using offload::PlaceSpec;

TEST(Placement, PatternsSpreadTheWeights) {
    EXPECT_EQ(make_pattern({1}), (std::vector<uint32_t>{0}));
    EXPECT_EQ(make_pattern({5, 5, 5}), (std::vector<uint32_t>{0, 1, 2}));
    EXPECT_EQ(make_pattern({3, 1}), (std::vector<uint32_t>{0, 0, 1, 0}));
    EXPECT_EQ(make_pattern({6, 2}), (std::vector<uint32_t>{0, 0, 1, 0}));
}

TEST(Placement, TheExampleOfTheFormatPage) {
    const std::vector<PlaceSpec> places = {
        {.name = "a", .size_bytes = mib, .copies = offload::Copies::scratch},
        {.name = "b", .size_bytes = 2 * mib + 512 * kib, .copies = offload::Copies::scratch}};
    const Placement placement = make_placement(places, {1, 1}, mib);
    const CopyExtent& copy = placement.copies[1][0];
    EXPECT_EQ(copy.first_slot, 1u);
    const CopyId id{.place = 1, .copy = 0};
    EXPECT_EQ(address_of(placement, id, 0).path, 1u);
    EXPECT_EQ(address_of(placement, id, 0).offset_bytes, copy.offset_bytes[1]);
    EXPECT_EQ(address_of(placement, id, 1).path, 0u);
    EXPECT_EQ(address_of(placement, id, 1).offset_bytes, copy.offset_bytes[0]);
    EXPECT_EQ(address_of(placement, id, 2).path, 1u);
    EXPECT_EQ(address_of(placement, id, 2).offset_bytes, copy.offset_bytes[1] + mib);
    EXPECT_EQ(placement.path_bytes, (std::vector<uint64_t>{2 * mib, mib + 512 * kib}));
}

TEST(Placement, NoPageHasTwoOwners) {
    std::mt19937_64 random(11);
    for (int round = 0; round < 30; round++) {
        std::vector<uint32_t> weights;
        for (uint64_t path = 0; path <= random() % 4; path++) {
            weights.push_back(static_cast<uint32_t>(1 + random() % 7));
        }
        std::vector<PlaceSpec> places;
        for (int i = 0; i < 20; i++) {
            places.push_back(
                {.name = "p",
                 .size_bytes = page_bytes * (1 + random() % 40),
                 .copies = random() % 2 == 1 ? offload::Copies::two : offload::Copies::scratch});
        }
        const uint64_t stripe_bytes = page_bytes * (1 + random() % 6);
        const Placement placement = make_placement(places, weights, stripe_bytes);
        ASSERT_EQ(find_fault(placement), nullptr);
        std::set<std::pair<uint32_t, uint64_t>> pages;
        uint64_t page_count = 0;
        for (offload::PlaceId place = 0; place < places.size(); place++) {
            for (uint8_t copy = 0; copy < count_of(places[place].copies); copy++) {
                for (uint64_t offset = 0; offset < places[place].size_bytes; offset += page_bytes) {
                    const BlockAddress address = address_of(
                        placement, {.place = place, .copy = copy}, offset / stripe_bytes);
                    const uint64_t page = address.offset_bytes + offset % stripe_bytes;
                    ASSERT_LT(page, placement.path_bytes[address.path]);
                    pages.emplace(address.path, page);
                    page_count++;
                }
            }
        }
        EXPECT_EQ(pages.size(), page_count);
    }
}

// The case of two swap paths that were filled one after the other: the split is within 5%.
TEST(Placement, BytesAreSplitByWeight) {
    std::vector<PlaceSpec> places(
        40, {.name = "p", .size_bytes = 10 * mib, .copies = offload::Copies::scratch});
    for (const auto& [weights, share] :
         {std::pair{std::vector<uint32_t>{1, 1}, 0.5}, {std::vector<uint32_t>{3, 1}, 0.75}}) {
        const Placement placement = make_placement(places, weights, mib);
        const auto first = static_cast<double>(placement.path_bytes[0]);
        EXPECT_NEAR(first / static_cast<double>(400 * mib), share, 0.05 * share);
    }
}

TEST(Placement, FindFaultSeesOverlapAndOverrun) {
    const std::vector<PlaceSpec> places(
        2, {.name = "p", .size_bytes = mib, .copies = offload::Copies::scratch});
    const Placement good = make_placement(places, {1}, mib);
    Placement bad = good;
    bad.copies[1][0].offset_bytes[0] -= page_bytes;
    EXPECT_STREQ(find_fault(bad), "two extents overlap");
    bad = good;
    bad.path_bytes[0] -= page_bytes;
    EXPECT_STREQ(find_fault(bad), "an extent leaves its data file");
    bad = good;
    bad.pattern[0] = 1;
    EXPECT_STREQ(find_fault(bad), "a slot names a path that does not exist");
}

}  // namespace
}  // namespace headrace::nvme
