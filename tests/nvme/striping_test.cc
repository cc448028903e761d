// Goal: a new store on several paths gets weights from what is known, and from a look at the drives
// where nothing is.
// Method: two folders of this machine, and a cache that says what the test wants it to; two small
// drives for what room makes of them.
#include "nvme/striping.h"

#include <gmock/gmock.h>

#include "nvme/drive_cache.h"
#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::mib;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StripingTest : public testing::Test {
  protected:
    StripingOptions options(const std::vector<std::string>& paths) {
        return {.probe = {.paths = paths, .run_name = "look", .depth = 4, .pool = pool_.span()},
                .cache_file = folder_.path() + "/drives.json",
                .now_unix_s = 1000};
    }

    TempFolder folder_;
    PageBuffer pool_{16 * mib};
};

TEST_F(StripingTest, one_path_needs_no_look) {
    StripingOptions one = options({folder_.path() + "/absent"});
    one.probe.pool = {};
    const auto striping = find_striping(one);
    ASSERT_TRUE(striping.ok()) << striping.error().text();
    EXPECT_THAT(striping->weights, ElementsAre(1));
}

TEST_F(StripingTest, two_folders_of_one_drive_are_equal) {
    const std::string a = folder_.make("a");
    const std::string b = folder_.make("b");
    const auto striping = find_striping(options({a, b}));
    ASSERT_TRUE(striping.ok()) << striping.error().text();
    ASSERT_EQ(striping->drives.size(), 2u);
    EXPECT_TRUE(std::filesystem::is_empty(a));
    EXPECT_TRUE(std::filesystem::is_empty(b));
    const DriveFacts facts = read_drive_facts(a);
    if (facts.device.empty()) GTEST_SKIP() << "no drive is behind " << a;
    // The second is the first: it was known by then.
    EXPECT_EQ(striping->drives[0], striping->drives[1]);
    EXPECT_THAT(striping->weights, ElementsAre(1, 1));
    EXPECT_THAT(striping->notes.back(), HasSubstr("1 : 1"));
}

TEST_F(StripingTest, what_is_known_is_not_measured) {
    const std::string a = folder_.make("a");
    const DriveFacts facts = read_drive_facts(a);
    if (facts.device.empty()) GTEST_SKIP() << "no drive is behind " << a;
    const KnownDrive known{.drive = {.read_bytes_per_s = 3e9,
                                     .write_burst_bytes_per_s = 3e9,
                                     .write_sustained_bytes_per_s = 1e9,
                                     .mixed_bytes_per_s = 2e9},
                           .measured_unix_s = 900};
    StripingOptions both = options({a, folder_.path()});
    ASSERT_TRUE(DriveCache(both.cache_file).keep(facts, known));
    both.probe.pool = {};  // a look would CHECK
    const auto striping = find_striping(both);
    ASSERT_TRUE(striping.ok()) << striping.error().text();
    EXPECT_EQ(striping->drives[0], known.drive);
    EXPECT_THAT(striping->notes[0], HasSubstr("reads 3.00 GB/s, writes 1.00 GB/s"));
}

TEST_F(StripingTest, a_path_that_cannot_be_looked_at_is_named) {
    const auto striping = find_striping(options({folder_.make("a"), folder_.path() + "/absent"}));
    ASSERT_FALSE(striping.ok());
    EXPECT_THAT(striping.error().text(), HasSubstr(folder_.path() + "/absent"));
}

// Two drives of 6 MiB for 10 MiB of places: evenly they fit, three to one they do not.
TEST_F(StripingTest, a_store_goes_as_evenly_as_the_room_makes_it) {
    const std::string a = folder_.make("a");
    const std::string b = folder_.make("b");
    const TempMount mounted_a(a, "size=6m");
    const TempMount mounted_b(b, "size=6m");
    if (!mounted_a.ok() || !mounted_b.ok()) GTEST_SKIP() << "this user may not mount";
    StoreOptions options{.paths = {a, b}, .run_name = "run"};
    for (int i = 0; i < 10; i++) {
        options.places.push_back({.name = "place " + std::to_string(i), .size_bytes = mib});
    }
    options.weights = {3, 1};
    options.block_bytes = 64 * offload::kib;
    auto store = open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    EXPECT_LE((*store)->bytes_on(0), 6 * mib);
    EXPECT_GT((*store)->bytes_on(0), 5 * mib) << "as near to three to one as there is room";
    EXPECT_EQ((*store)->bytes_on(0) + (*store)->bytes_on(1), 10 * mib);
    const auto is_told = [](const std::string& note) {
        return note.find("instead of 3 : 1: the store needs 7.") != std::string::npos &&
               note.find("are free there") != std::string::npos;
    };
    EXPECT_TRUE(std::ranges::any_of((*store)->notes(), is_told))
        << ::testing::PrintToString((*store)->notes());
    store->reset();

    options.places.resize(7);  // 5.25 MiB
    store = open_store(options);
    ASSERT_TRUE(store.ok()) << store.error().text();
    EXPECT_EQ((*store)->bytes_on(0), 7 * mib * 3 / 4) << "where there is room nothing changes";
    EXPECT_FALSE(std::ranges::any_of((*store)->notes(), is_told));
    store->reset();

    options.places.resize(14, options.places[0]);
    for (size_t i = 0; i < options.places.size(); i++) options.places[i].name = std::to_string(i);
    store = open_store(options);
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, offload::ErrorCode::does_not_fit);
    EXPECT_THAT(store.error().text(), HasSubstr("in " + a + " and"));
}

}  // namespace
}  // namespace headrace::nvme
