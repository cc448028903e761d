// Goal: the target is whole or as it was, and nothing is left beside it. Method: real folders, with
// and without publish(), and places that cannot be written.
#include "engine/checkpoint/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/engine/checkpoint/test_folder.h"

namespace headrace::engine {
namespace {

using offload::Result;
using testing::ElementsAre;
using testing::IsEmpty;

void put(const std::string& path) {
    std::ofstream(path) << "new";
}

TEST(Staging, TakesThePlaceOfAnAbsentAnEmptyAndAFilledFolder) {
    for (const int before : {0, 1, 2}) {
        const TestFolder folder;
        if (before > 0) std::filesystem::create_directory(folder / "out");
        if (before > 1) folder.write("out/old", "old");
        Result<StagingFolder> staging = StagingFolder::create(folder / "out/");
        ASSERT_TRUE(staging.ok());
        put(staging->path() + "/f");
        ASSERT_TRUE(staging->publish().ok());
        EXPECT_THAT(names_in(folder.path()), ElementsAre("out"));
        EXPECT_THAT(names_in(folder / "out"), ElementsAre("f"));
    }
}

TEST(Staging, LeavesNothingWhenAbandoned) {
    const TestFolder folder;
    folder.write("out/old", "old");
    for (const char* target : {"out", "made/on/the/way"}) {
        Result<StagingFolder> staging = StagingFolder::create(folder / target);
        ASSERT_TRUE(staging.ok());
        put(staging->path() + "/f");
        StagingFolder moved = std::move(*staging);
        EXPECT_TRUE(std::filesystem::exists(moved.path()));
    }
    EXPECT_THAT(names_in(folder.path()), ElementsAre("out"));
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("old"));
}

TEST(Staging, MakesParents) {
    const TestFolder folder;
    Result<StagingFolder> staging = StagingFolder::create(folder / "a/b/out");
    ASSERT_TRUE(staging.ok());
    ASSERT_TRUE(staging->publish().ok());
    EXPECT_THAT(names_in(folder / "a/b"), ElementsAre("out"));
    EXPECT_THAT(names_in(folder / "a/b/out"), IsEmpty());
}

TEST(Staging, TwoAtOnceDoNotMeet) {
    const TestFolder folder;
    Result<StagingFolder> left = StagingFolder::create(folder / "out");
    Result<StagingFolder> right = StagingFolder::create(folder / "out");
    ASSERT_TRUE(left.ok() && right.ok());
    EXPECT_NE(left->path(), right->path());
}

// Killed as kill -9 does, so that no destructor runs.
TEST(Staging, ckpt_2_WhatAKillLeftIsRemovedByTheNext) {
    const TestFolder folder;
    const Result<StagingFolder> alive = StagingFolder::create(folder / "out");
    ASSERT_TRUE(alive.ok());
    folder.write("out.partial-thesis", "not ours");
    for (int start = 0; start < 3; ++start) {
        const pid_t child = fork();
        if (child == 0) {
            const Result<StagingFolder> staging = StagingFolder::create(folder / "out");
            put(staging->path() + "/f");
            raise(SIGKILL);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status));
        EXPECT_EQ(names_in(folder.path()).size(), 3u) << "alive, the thesis, and one that died";
    }
    const Result<StagingFolder> next = StagingFolder::create(folder / "out");
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(names_in(folder.path()).size(), 3u);
    EXPECT_TRUE(std::filesystem::is_directory(alive->path()));
    EXPECT_TRUE(std::filesystem::exists(folder / "out.partial-thesis"));
}

TEST(Staging, RefusesWhatCannotBeWritten) {
    const TestFolder folder;
    folder.write("file", "x");
    for (const std::string& target : {folder / "file/out", std::string("/proc/headrace/out")}) {
        const Result<StagingFolder> staging = StagingFolder::create(target);
        ASSERT_FALSE(staging.ok());
        EXPECT_EQ(staging.error().code, offload::ErrorCode::failed);
    }
    // A file took the name meanwhile: it stays.
    Result<StagingFolder> staging = StagingFolder::create(folder / "out");
    ASSERT_TRUE(staging.ok());
    folder.write("out", "kept");
    EXPECT_FALSE(staging->publish().ok());
    EXPECT_EQ(bytes_of_file(folder / "out"), "kept");
}

}  // namespace
}  // namespace headrace::engine
