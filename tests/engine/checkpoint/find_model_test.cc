// Goal: what people type finds the folder, or the error says where was looked. Method: folders and
// a hub cache as huggingface_hub lays it out.
#include "engine/checkpoint/find_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/engine/checkpoint/test_folder.h"

namespace headrace::engine {
namespace {

using offload::ErrorCode;
using offload::Result;
using testing::AllOf;
using testing::HasSubstr;

class FindModelTest : public testing::Test {
  protected:
    void SetUp() override {
        folder_.write("plain/config.json", "{}");
        folder_.write(entry_ + "/refs/main", "abc123\n");
        folder_.write(entry_ + "/blobs/1", "{}");
        for (const char* revision : {"abc123", "def456"}) {
            const std::string snapshot = folder_ / (entry_ + "/snapshots/" + revision);
            std::filesystem::create_directories(snapshot);
            std::filesystem::create_symlink("../../blobs/1", snapshot + "/config.json");
        }
    }

    Result<std::string> find(const std::string& text) const {
        return find_model(text, {.folder = folder_ / "hub", .chosen_by = "HF_HUB_CACHE"});
    }

    std::string error_of(const std::string& text) const {
        const Result<std::string> found = find(text);
        EXPECT_FALSE(found.ok()) << text;
        if (found.ok()) return {};
        EXPECT_EQ(found.error().code, ErrorCode::bad_data);
        return found.error().text();
    }

    const std::string entry_ = "hub/models--org--tiny-1.5";
    TestFolder folder_;
};

TEST_F(FindModelTest, FindsFoldersAndNames) {
    EXPECT_EQ(*find(folder_ / "plain"), folder_ / "plain");
    const std::string snapshot = folder_ / (entry_ + "/snapshots/abc123");
    EXPECT_EQ(*find("org/tiny-1.5"), snapshot);
    EXPECT_EQ(*find(folder_ / entry_), snapshot);
    EXPECT_EQ(*find(folder_ / (entry_ + "/snapshots/def456")),
              folder_ / (entry_ + "/snapshots/def456"));
}

TEST_F(FindModelTest, WithoutRefsTheOnlySnapshotIsMeant) {
    std::filesystem::remove_all(folder_ / (entry_ + "/refs"));
    EXPECT_THAT(error_of("org/tiny-1.5"), AllOf(HasSubstr("abc123"), HasSubstr("def456")));
    std::filesystem::remove_all(folder_ / (entry_ + "/snapshots/def456"));
    EXPECT_EQ(*find("org/tiny-1.5"), folder_ / (entry_ + "/snapshots/abc123"));
}

TEST_F(FindModelTest, TellsHalfADownload) {
    folder_.write(entry_ + "/refs/main", "fff999");
    EXPECT_THAT(error_of("org/tiny-1.5"), HasSubstr("fff999"));
    folder_.write(entry_ + "/refs/main", "abc123");
    std::filesystem::remove(folder_ / (entry_ + "/snapshots/abc123/config.json"));
    EXPECT_THAT(error_of("org/tiny-1.5"), HasSubstr("half a download"));
    std::filesystem::remove_all(folder_ / (entry_ + "/snapshots"));
    EXPECT_THAT(error_of("org/tiny-1.5"), HasSubstr("no snapshot"));
}

TEST_F(FindModelTest, SaysWhereItLookedAndThatNothingIsDownloaded) {
    EXPECT_THAT(
        error_of("org/other"),
        AllOf(HasSubstr("no folder org/other"), HasSubstr(folder_ / "hub/models--org--other"),
              HasSubstr("HF_HUB_CACHE"), HasSubstr("nothing is downloaded")));
    EXPECT_THAT(error_of("../org/other"), HasSubstr("no folder ../org/other"));
    EXPECT_THAT(error_of(""), HasSubstr("no model is named"));
    const Result<std::string> found = find_model("org/other", {});
    ASSERT_FALSE(found.ok());
    EXPECT_THAT(found.error().text(), HasSubstr("nothing is downloaded"));
}

TEST_F(FindModelTest, TellsAFileAndOtherFormats) {
    folder_.write("gguf/m.gguf", "x");
    EXPECT_THAT(error_of(folder_ / "gguf/m.gguf"), HasSubstr("it is a file"));
    EXPECT_THAT(error_of(folder_ / "gguf"),
                AllOf(HasSubstr("no config.json"), HasSubstr("gguf_file='m.gguf'")));
}

TEST(HubCache, FollowsTheSettingsInTheirOrder) {
    std::map<std::string, std::string> environment = {
        {"HF_HUB_CACHE", "/x"}, {"HF_HOME", "/x"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/x"}};
    const auto read_variable = [&](const char* name) -> const char* {
        const auto place = environment.find(name);
        return place == environment.end() ? nullptr : place->second.c_str();
    };
    const std::pair<const char*, const char*> rows[] = {{"HF_HUB_CACHE", "/x"},
                                                        {"HF_HOME", "/x/hub"},
                                                        {"XDG_CACHE_HOME", "/x/huggingface/hub"},
                                                        {"HOME", "/x/.cache/huggingface/hub"}};
    for (const auto& [name, folder] : rows) {
        EXPECT_EQ(hub_cache_from(read_variable).folder, folder);
        EXPECT_EQ(hub_cache_from(read_variable).chosen_by, name);
        environment[name] = "";  // as good as not set
    }
    EXPECT_EQ(hub_cache_from(read_variable).folder, "");
    EXPECT_EQ(hub_cache_from([](const char*) { return nullptr; }).folder, "");
}

}  // namespace
}  // namespace headrace::engine
