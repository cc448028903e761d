// Goal: of all that is mounted only what can hold a store is named, the roomiest first. Method: a
// mountinfo of our own, whose folders are there.
#include "engine/config/mounts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace headrace::engine {
namespace {

TEST(Mounts, OnlyDrivesThatCanBeWrittenToAreNamed) {
    const std::string root = testing::TempDir() + "mounts_test";
    std::filesystem::remove_all(root);
    std::filesystem::create_directories(root + "/proc/self");
    std::filesystem::create_directories(root + "/a drive");
    std::ofstream(root + "/a file") << "no folder";
    std::ofstream(root + "/proc/self/mountinfo")
        << "22 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n"
        << "30 1 8:1 / " << root << "/a\\040drive rw,noatime shared:1 - ext4 /dev/a rw\n"
        << "31 1 8:1 /sub " << root << " rw,noatime - ext4 /dev/a rw\n"
        << "32 1 8:2 / " << root << "/proc ro,noatime - xfs /dev/b rw\n"
        << "33 1 8:3 / " << root << "/a\\040file rw - ext4 /dev/c rw\n"
        << "34 1 0:40 / " << root << "/proc/self rw - tmpfs tmpfs rw\n"
        << "35 1 8:4 / " << root << "/absent rw - ext4 /dev/d rw\n"
        << "torn";
    const std::vector<Mount> mounts = mounts_with_room(1, root);
    ASSERT_EQ(mounts.size(), 1u) << "once per device; no file, nothing read-only or in memory";
    EXPECT_EQ(mounts[0].folder, root + "/a drive");
    EXPECT_EQ(mounts[0].file_system, "ext4");
    EXPECT_GT(mounts[0].free_bytes, 0u);
    EXPECT_TRUE(mounts_with_room(std::numeric_limits<uint64_t>::max(), root).empty());
    EXPECT_TRUE(mounts_with_room(1, root + "/nowhere").empty());
}

}  // namespace
}  // namespace headrace::engine
