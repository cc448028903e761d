// Goal: the map is what FORMAT.md says, and damage is noticed. Method: bytes read at the offsets of
// the page, not through the structs; then every kind of first page.
#include "nvme/format.h"

#include <gtest/gtest.h>

#include <cstring>

#include "offload/units.h"

namespace headrace::nvme {
namespace {

using offload::mib;
using offload::PlaceSpec;

const std::vector<PlaceSpec>& two_places() {
    static const std::vector<PlaceSpec> places = {
        {.name = "hi layers.0/0", .size_bytes = 2 * mib, .copy_count = 2},
        {.name = "stash", .size_bytes = mib, .copy_count = 1}};
    return places;
}

MapImage example() {
    return make_map({.uuid = {1, 2, 3},
                     .path_index = 1,
                     .run_name = "run",
                     .owner = {.pid = 77, .host = "host", .boot_id = "boot"}},
                    two_places(), make_placement(two_places(), {1, 1}, mib));
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
    EXPECT_EQ(at<uint32_t>(head, 8), 1u);         // version
    EXPECT_EQ(at<uint32_t>(head, 12), 1u);        // layout
    EXPECT_EQ(at<uint8_t>(head, 18), 3u);         // uuid
    EXPECT_EQ(at<uint32_t>(head, 32), 1u);        // path_index
    EXPECT_EQ(at<uint32_t>(head, 36), 2u);        // path_count
    EXPECT_EQ(at<uint64_t>(head, 40), mib);       // stripe_bytes
    EXPECT_EQ(at<uint64_t>(head, 48), 2u);        // place_count
    EXPECT_EQ(at<uint64_t>(head, 56), 16384u);    // place_table_offset
    EXPECT_EQ(at<uint64_t>(head, 64), 20480u);    // name_table_offset
    EXPECT_EQ(at<uint64_t>(head, 72), 18u);       // name_table_bytes
    EXPECT_EQ(at<uint64_t>(head, 112), 2 * mib);  // data_bytes
    EXPECT_EQ(at<uint32_t>(head, 128), 77u);      // owner_pid
    EXPECT_EQ(at<uint32_t>(head, 132), 2u);       // pattern_count
    EXPECT_STREQ(static_cast<const char*>(head) + 136, "host");
    EXPECT_STREQ(static_cast<const char*>(head) + 200, "boot");
    EXPECT_EQ(at<uint8_t>(head, 257), 1u);  // pattern[1]
    EXPECT_STREQ(static_cast<const char*>(head) + 512, "run");
}

TEST(Format, ThePlaceTableLiesAsThePageSays) {
    const MapImage map = example();
    const std::byte* second = map.tables.data() + 64;
    EXPECT_EQ(at<uint64_t>(second, 0), mib);
    EXPECT_EQ(at<uint32_t>(second, 40), 13u);  // name_offset
    EXPECT_EQ(at<uint16_t>(second, 44), 5u);   // name_bytes
    EXPECT_EQ(at<uint8_t>(second, 46), 1u);    // copy_count
    EXPECT_EQ(std::memcmp(map.tables.data() + 4096, "hi layers.0/0stash", 18), 0);
    EXPECT_EQ(at<uint64_t>(map.tables.data(), 24), mib);  // half of copy 0 lies on this path
}

TEST(Format, EveryFirstPageIsTold) {
    const MapImage map = example();
    std::array<std::byte, 4096> page{};
    EXPECT_EQ(classify(page), FirstPage::zeros);
    page = page_of(map.superblock);
    EXPECT_EQ(classify(page), FirstPage::store);
    EXPECT_EQ(superblock_of(page).owner_pid, 77u);
    page[600] = std::byte{1};
    EXPECT_EQ(classify(page), FirstPage::foreign);
    page = page_of(map.superblock);
    page[0] = std::byte{'X'};
    EXPECT_EQ(classify(page), FirstPage::foreign);
    page = page_of(map.superblock);
    page[8] = std::byte{2};
    EXPECT_EQ(classify(page), FirstPage::newer);
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
    std::vector<PlaceSpec> places(10000, {.name = "m layers.39/3", .size_bytes = 4096});
    const MapImage map = make_map({.uuid = {}, .path_index = 0, .run_name = "r", .owner = {}},
                                  places, make_placement(places, {1}, mib));
    EXPECT_EQ(find_fault(map), nullptr);
    EXPECT_EQ(map.superblock.map_bytes, map_bytes_of(places));
    EXPECT_LT(map.superblock.map_bytes, 2 * mib);
}

}  // namespace
}  // namespace headrace::nvme
