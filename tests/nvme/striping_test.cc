// Goal: a new store on several paths gets weights from what is known, and from a look at the drives
// where nothing is.
// Method: two folders of this machine, and a cache that says what the test wants it to.
#include "nvme/striping.h"

#include <gmock/gmock.h>

#include "nvme/drive_cache.h"
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

}  // namespace
}  // namespace headrace::nvme
