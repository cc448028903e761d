// Goal: what was measured is found again while it is good, and nothing that is wrong with the file
// harms anybody.
// Method: a cache in a folder of its own, drives and times made up.
#include "nvme/drive_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

constexpr int64_t now = 1'764'450'000;

DriveFacts facts_of(const std::string& device) {
    return {.device = device,
            .disks = {device},
            .model = "Fast \xff 990",
            .serial = "S1",
            .size_bytes = 1000,
            .write_cache = "",
            .file_system = "ext4",
            .file_system_uuid = "u-" + device,
            .file_system_bytes = 900,
            .free_bytes = 800};
}

KnownDrive known_of(bool is_quick, int64_t measured) {
    return {.drive = {.read_bytes_per_s = 7e9,
                      .write_burst_bytes_per_s = 6e9,
                      .write_sustained_bytes_per_s = 1.5e9,
                      .mixed_bytes_per_s = 3e9,
                      .burst_bytes = 118'000'000'000,
                      .has_fallen = true},
            .is_quick = is_quick,
            .measured_unix_s = measured};
}

class DriveCacheTest : public testing::Test {
  protected:
    void write(const std::string& text) { std::ofstream(file_) << text; }

    TempFolder folder_;
    std::string file_ = folder_.path() + "/drives.json";
    DriveCache cache_{file_};
};

TEST_F(DriveCacheTest, keeps_several_drives_and_finds_each) {
    EXPECT_FALSE(cache_.find(facts_of("a"), now).has_value());
    ASSERT_TRUE(cache_.keep(facts_of("a"), known_of(false, now)));
    KnownDrive other = known_of(true, now);
    other.drive.read_bytes_per_s = 1e9;
    ASSERT_TRUE(cache_.keep(facts_of("b"), other));
    ASSERT_TRUE(cache_.find(facts_of("a"), now).has_value());
    EXPECT_EQ(cache_.find(facts_of("a"), now)->drive, known_of(false, now).drive);
    EXPECT_EQ(cache_.find(facts_of("b"), now)->drive.read_bytes_per_s, 1e9);
    EXPECT_TRUE(cache_.find(facts_of("b"), now)->is_quick);
    EXPECT_FALSE(cache_.find(facts_of("c"), now).has_value());
    size_t file_count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
        file_count += entry.is_regular_file() ? 1 : 0;
    }
    EXPECT_EQ(file_count, 1u) << "nothing lies about";
}

TEST_F(DriveCacheTest, age_and_a_changed_file_system_make_it_forget) {
    ASSERT_TRUE(cache_.keep(facts_of("a"), known_of(true, now)));
    EXPECT_TRUE(cache_.find(facts_of("a"), now + quickly_known_seconds_max).has_value());
    EXPECT_FALSE(cache_.find(facts_of("a"), now + quickly_known_seconds_max + 1).has_value());
    ASSERT_TRUE(cache_.keep(facts_of("a"), known_of(false, now)));
    EXPECT_TRUE(cache_.find(facts_of("a"), now + known_seconds_max).has_value());
    EXPECT_FALSE(cache_.find(facts_of("a"), now + known_seconds_max + 1).has_value());
    EXPECT_FALSE(cache_.find(facts_of("a"), now - 1).has_value()) << "from the future";
    DriveFacts grown = facts_of("a");
    grown.file_system_bytes++;
    EXPECT_FALSE(cache_.find(grown, now).has_value());
}

TEST_F(DriveCacheTest, a_quick_look_does_not_replace_a_thorough_one) {
    ASSERT_TRUE(cache_.keep(facts_of("a"), known_of(false, now)));
    EXPECT_FALSE(cache_.keep(facts_of("a"), known_of(true, now + 1)));
    EXPECT_FALSE(cache_.find(facts_of("a"), now + 1)->is_quick);
    EXPECT_TRUE(cache_.keep(facts_of("a"), known_of(true, now + known_seconds_max + 1)));
    EXPECT_TRUE(cache_.keep(facts_of("a"), known_of(false, now + known_seconds_max + 2)));
}

TEST_F(DriveCacheTest, a_damaged_file_is_an_empty_one_and_is_replaced) {
    for (const char* text :
         {"", "{", "[]", "{\"version\": 1}", "{\"version\": 2, \"drives\": {}}",
          "{\"version\": 1, \"drives\": []}", "{\"version\": \"1\", \"drives\": {}}"}) {
        write(text);
        EXPECT_FALSE(cache_.find(facts_of("a"), now).has_value()) << text;
        EXPECT_TRUE(cache_.keep(facts_of("a"), known_of(false, now))) << text;
        EXPECT_TRUE(cache_.find(facts_of("a"), now).has_value()) << text;
    }
}

TEST_F(DriveCacheTest, an_entry_with_a_field_that_is_wrong_is_not_believed) {
    ASSERT_TRUE(cache_.keep(facts_of("a"), known_of(false, now)));
    std::stringstream whole;
    whole << std::ifstream(file_).rdbuf();
    const std::pair<const char*, const char*> changes[] = {
        {"7000000000.0", "\"fast\""}, {"7000000000.0", "-1"}, {"1500000000.0", "0"},
        {"118000000000", "1.5"},      {"true", "1"},          {"1764450000", "null"},
        {"read_bytes_per_s", "rate"}};
    for (const auto& [from, to] : changes) {
        std::string text = whole.str();
        ASSERT_NE(text.find(from), std::string::npos) << from << " in " << text;
        write(text.replace(text.find(from), std::string(from).size(), to));
        EXPECT_FALSE(cache_.find(facts_of("a"), now).has_value()) << from << " to " << to;
    }
}

TEST_F(DriveCacheTest, where_nothing_can_be_kept_nothing_is) {
    EXPECT_FALSE(DriveCache("").keep(facts_of("a"), known_of(false, now)));
    EXPECT_FALSE(DriveCache("").find(facts_of("a"), now).has_value());
    EXPECT_FALSE(cache_.keep(facts_of(""), known_of(false, now))) << "no drive behind the folder";
    write("a file");
    EXPECT_FALSE(
        DriveCache(file_ + "/below/drives.json").keep(facts_of("a"), known_of(false, now)));
}

}  // namespace
}  // namespace headrace::nvme
