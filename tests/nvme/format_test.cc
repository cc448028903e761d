// Goal: the map is what FORMAT.md says, and damage is noticed. Method: bytes read at the offsets of
// the page, not through the structs; then every kind of first page.
#include "nvme/format.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "offload/units.h"

namespace headrace::nvme {
namespace {

using offload::mib;
using offload::PlaceSpec;

std::vector<PlaceSpec> durable_places() {
    return {{.name = "hi layers.0/0", .size_bytes = 2 * mib, .copies = offload::Copies::two},
            {.name = "stash", .size_bytes = mib, .copies = offload::Copies::two}};
}

MapImage example() {
    return make_map({.uuid = {1, 2, 3},
                     .path_index = 1,
                     .run_name = "run",
                     .paths = {"/mnt/a", "/mnt/b"},
                     .predecessor = {.uuid = {9}, .paths = {"/old"}}},
                    durable_places(), make_placement(durable_places(), {1, 1}, mib));
}

template <typename Value>
Value at(const void* bytes, uint64_t offset_bytes) {
    Value value;
    std::memcpy(&value, static_cast<const std::byte*>(bytes) + offset_bytes, sizeof(value));
    return value;
}

std::array<std::byte, 4096> page_of(const Superblock& head) {
    std::array<std::byte, 4096> page{};
    std::memcpy(page.data(), &head, sizeof(head));
    return page;
}

TEST(Format, TheSuperblockLiesAsThePageSays) {
    const MapImage map = example();
    const void* head = &map.superblock;
    EXPECT_EQ(std::memcmp(head, "HEADRACE", 8), 0);
    EXPECT_EQ(at<uint32_t>(head, 8), 3u);         // version
    EXPECT_EQ(at<uint32_t>(head, 12), 1u);        // layout
    EXPECT_EQ(at<uint8_t>(head, 18), 3u);         // uuid
    EXPECT_EQ(at<uint32_t>(head, 32), 1u);        // path_index
    EXPECT_EQ(at<uint32_t>(head, 36), 2u);        // path_count
    EXPECT_EQ(at<uint64_t>(head, 40), mib);       // stripe_bytes
    EXPECT_EQ(at<uint64_t>(head, 48), 2u);        // place_count
    EXPECT_EQ(at<uint64_t>(head, 56), 49152u);    // place_table_offset
    EXPECT_EQ(at<uint64_t>(head, 64), 53248u);    // name_table_offset
    EXPECT_EQ(at<uint64_t>(head, 72), 18u);       // name_table_bytes
    EXPECT_EQ(at<uint64_t>(head, 80), 57344u);    // commit_area_offset
    EXPECT_EQ(at<uint64_t>(head, 88), 65536u);    // and of the second
    EXPECT_EQ(at<uint64_t>(head, 96), 8192u);     // commit_area_bytes
    EXPECT_EQ(at<uint64_t>(head, 104), 73728u);   // map_bytes
    EXPECT_EQ(at<uint64_t>(head, 112), 3 * mib);  // data_bytes: without scratch
    EXPECT_EQ(at<uint32_t>(head, 128), 2u);       // pattern_count
    EXPECT_EQ(at<uint32_t>(head, 132), 1u);       // predecessor_path_count
    EXPECT_EQ(at<uint8_t>(head, 136), 9u);        // predecessor_uuid
    EXPECT_EQ(at<uint32_t>(head, 152), 2u);       // copy_count
    EXPECT_EQ(at<uint8_t>(head, 257), 1u);        // pattern[1]
    EXPECT_STREQ(static_cast<const char*>(head) + 512, "run");
}

TEST(Format, TheTablesLieAsThePageSays) {
    const MapImage map = example();
    const auto* paths = reinterpret_cast<const char*>(map.tables.data());
    EXPECT_STREQ(paths, "/mnt/a");
    EXPECT_STREQ(paths + 7, "/mnt/b");
    EXPECT_STREQ(paths + 16384, "/old");
    const std::byte* entries = map.tables.data() + (49152 - 16384);
    const std::byte* second = entries + 64;
    EXPECT_EQ(at<uint64_t>(second, 0), mib);
    EXPECT_EQ(at<uint32_t>(second, 40), 13u);   // name_offset
    EXPECT_EQ(at<uint16_t>(second, 44), 5u);    // name_bytes
    EXPECT_EQ(at<uint64_t>(entries, 24), mib);  // half of copy 0 lies on this path
    EXPECT_EQ(std::memcmp(entries + 4096, "hi layers.0/0stash", 18), 0);
}

TEST(Format, WhatWasWrittenIsRead) {
    const MapImage map = example();
    EXPECT_EQ(places_of(map), durable_places());
    EXPECT_EQ(pattern_of(map.superblock), (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(paths_of(map), (std::vector<std::string>{"/mnt/a", "/mnt/b"}));
    EXPECT_EQ(predecessor_of(map), (Predecessor{.uuid = {9}, .paths = {"/old"}}));
}

TEST(Format, PlacesOfOneCopyHaveNoOther) {
    std::vector<PlaceSpec> places = durable_places();
    for (PlaceSpec& place : places) place.copies = offload::Copies::one;
    const MapImage map =
        make_map({.run_name = "run", .paths = {"/a"}}, places, make_placement(places, {1}, mib));
    EXPECT_EQ(at<uint32_t>(&map.superblock, 152), 1u);
    EXPECT_EQ(at<uint64_t>(&map.superblock, 112), 3 * mib);
    const std::byte* second = map.tables.data() + (49152 - 16384) + 64;
    EXPECT_EQ(at<uint64_t>(second, 8), 2 * mib);  // copy 0 begins behind the first place
    EXPECT_EQ(at<uint64_t>(second, 16), 0u);
    EXPECT_EQ(at<uint64_t>(second, 24), mib);
    EXPECT_EQ(at<uint64_t>(second, 32), 0u);
    EXPECT_EQ(places_of(map), places);
}

// Version 2 said nothing of copies: there were two.
TEST(Format, AStoreOfVersionTwoIsRead) {
    MapImage map = example();
    map.superblock.version = 2;
    map.superblock.copy_count = 0;
    const auto hash = XXH3_64bits(&map.superblock, offsetof(Superblock, hash));
    map.superblock.hash = hash;
    EXPECT_EQ(classify(page_of(map.superblock)), FirstPage::store);
    EXPECT_EQ(find_fault(map), nullptr);
    EXPECT_EQ(places_of(map), durable_places());
}

// The owner and the notice: a torn page is nobody's.
TEST(Format, OwnerAndNoticeSurviveATornWrite) {
    const Owner owner{.pid = 77, .host = "host", .boot_id = "boot"};
    Page page = owner_page_of(owner);
    EXPECT_EQ(at<uint32_t>(page.data(), 8), 77u);
    EXPECT_STREQ(reinterpret_cast<const char*>(page.data()) + 16, "host");
    EXPECT_STREQ(reinterpret_cast<const char*>(page.data()) + 80, "boot");
    EXPECT_EQ(owner_of(page), owner);
    page[20] ^= std::byte{1};
    EXPECT_EQ(owner_of(page), Owner{});
    EXPECT_EQ(owner_of(Page{}), Owner{});

    const Notice notice{.successor_uuid = {4, 5}, .path = "/mnt/next"};
    page = notice_page_of(notice);
    EXPECT_EQ(at<uint8_t>(page.data(), 9), 5u);
    EXPECT_EQ(std::memcmp(page.data() + 32, "/mnt/next", 9), 0);
    EXPECT_EQ(notice_of(page), notice);
    page[33] ^= std::byte{1};
    EXPECT_FALSE(notice_of(page).has_value());
}

TEST(Format, PathsThatAreTooLongAreAUsageError) {
    const std::vector<std::string> most(4, std::string(4095, 'p'));
    EXPECT_TRUE(check_path_table(most).ok());
    EXPECT_EQ(check_path_table(std::vector(5, std::string(4095, 'p'))).error().code,
              offload::ErrorCode::usage);
}

TEST(Format, EveryFirstPageIsTold) {
    const MapImage map = example();
    std::array<std::byte, 4096> page{};
    EXPECT_EQ(classify(page), FirstPage::unfinished);
    page = page_of(map.superblock);
    EXPECT_EQ(classify(page), FirstPage::store);
    EXPECT_EQ(superblock_of(page).path_index, 1u);
    // Torn in the making: any of its sectors kept, over zeros. Three of them are never zeros.
    for (unsigned kept = 0; kept < 255; kept++) {
        Page torn{};
        for (size_t sector = 0; sector < 8; sector++) {
            if ((kept >> sector & 1) == 0) continue;
            std::memcpy(torn.data() + sector * 512, page.data() + sector * 512, 512);
        }
        const bool is_whole = (kept & 0b10000011) == 0b10000011;
        EXPECT_EQ(classify(torn), is_whole ? FirstPage::store : FirstPage::unfinished) << kept;
    }
    // What lacks a sector and holds what no superblock does is not ours.
    std::memset(page.data(), 0, 512);
    page[1000] = std::byte{1};
    EXPECT_EQ(classify(page), FirstPage::foreign);
    page = page_of(map.superblock);
    page[600] = std::byte{1};
    EXPECT_EQ(classify(page), FirstPage::foreign);
    page = page_of(map.superblock);
    page[0] = std::byte{'X'};
    EXPECT_EQ(classify(page), FirstPage::foreign);
    page = page_of(map.superblock);
    page[8] = std::byte{4};
    EXPECT_EQ(classify(page), FirstPage::newer);
    // Version 1 had its hash in the same place.
    page = page_of(map.superblock);
    page[8] = std::byte{1};
    const uint64_t hash = XXH3_64bits(page.data(), 4088);
    std::memcpy(page.data() + 4088, &hash, sizeof(hash));
    EXPECT_EQ(classify(page), FirstPage::older);
}

TEST(Format, FindFaultSeesDamage) {
    MapImage map = example();
    EXPECT_EQ(find_fault(map), nullptr);
    map.tables[3] ^= std::byte{1};
    EXPECT_STREQ(find_fault(map), "the tables do not fit their hash");
    map = example();
    map.superblock.stripe_bytes++;
    EXPECT_STREQ(find_fault(map), "the superblock does not fit its hash");
    map = example();
    map.tables.resize(64);
    EXPECT_STREQ(find_fault(map), "the tables are cut short");
}

TEST(Format, TenThousandPlacesHaveRoom) {
    std::vector<PlaceSpec> places(
        10000, {.name = "m layers.39/3", .size_bytes = 4096, .copies = offload::Copies::two});
    const MapImage map = make_map({.uuid = {}, .run_name = "r", .paths = {"/p"}, .predecessor = {}},
                                  places, make_placement(places, {1}, mib));
    EXPECT_EQ(find_fault(map), nullptr);
    EXPECT_EQ(map.superblock.map_bytes, map_bytes_of(places));
    EXPECT_LT(map.superblock.map_bytes, 2 * mib);
}

}  // namespace
}  // namespace headrace::nvme
