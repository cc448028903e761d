// Goal: files tell what went wrong with them. Method: real files, links, pipes and limits.
#include "engine/checkpoint/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/engine/checkpoint/test_folder.h"

namespace headrace::engine {
namespace {

using offload::ErrorCode;
using offload::Result;
using offload::Status;
using testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

TEST(File, ReadsWhatWasWritten) {
    const TestFolder folder;
    Result<OutputFile> output = OutputFile::create(folder / "f", 10);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(output->write(4, bytes("later")).ok());
    ASSERT_TRUE(output->write(10, {}).ok());
    ASSERT_TRUE(output->sync().ok());
    EXPECT_EQ(bytes_of_file(folder / "f"), std::string("\0\0\0\0later\0", 10));
    const Result<InputFile> input = InputFile::open(folder / "f");
    ASSERT_TRUE(input.ok());
    EXPECT_EQ(input->size_bytes(), 10u);
    std::string text(3, '?');
    ASSERT_TRUE(input->read(5, std::as_writable_bytes(std::span(text))).ok());
    EXPECT_EQ(text, "ate");
    EXPECT_TRUE(sync_folder(folder.path()).ok());
}

TEST(File, RefusesWhatIsNoFile) {
    const TestFolder folder;
    std::filesystem::create_symlink("nowhere", folder / "link");
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    const std::pair<const char*, const char*> rows[] = {{"absent", "No such file"},
                                                        {"link", "half a download"},
                                                        {"pipe", "not a file"},
                                                        {"", "not a"}};
    for (const auto& [name, said] : rows) {
        const Result<InputFile> input = InputFile::open(folder / name);
        ASSERT_FALSE(input.ok()) << name;
        EXPECT_THAT(input.error().text(), HasSubstr(said));
        EXPECT_THAT(input.error().text(), HasSubstr(folder.path()));
    }
}

TEST(File, TellsThatAFileShrankUnderIt) {
    const TestFolder folder;
    const Result<InputFile> input = InputFile::open(folder.write("f", "0123456789"));
    ASSERT_TRUE(input.ok());
    std::filesystem::resize_file(folder / "f", 4);
    std::string text(6, '?');
    const Status status = input->read(2, std::as_writable_bytes(std::span(text)));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::bad_data);
    EXPECT_THAT(status.error().text(), HasSubstr("ends earlier"));
}

TEST(File, CreatesOnlyNewFiles) {
    const TestFolder folder;
    folder.write("f", "kept");
    EXPECT_FALSE(OutputFile::create(folder / "f", 1).ok());
    EXPECT_FALSE(OutputFile::create(folder / "absent/f", 1).ok());
    EXPECT_EQ(bytes_of_file(folder / "f"), "kept");
}

// A limit on the size of files stands in for a full drive: the blocks are refused at the start.
TEST(File, LeavesNothingWhenTheBlocksAreRefused) {
    const TestFolder folder;
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit small = before;
    small.rlim_cur = 4096;
    auto* const handler = signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Result<OutputFile> output = OutputFile::create(folder / "f", 8192);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    ASSERT_FALSE(output.ok());
    EXPECT_EQ(output.error().code, ErrorCode::failed);
    EXPECT_THAT(output.error().text(), HasSubstr("8.00 KiB"));
    EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(File, ReadsTextUpToALimit) {
    const TestFolder folder;
    folder.write("f", "12345");
    EXPECT_EQ(*read_text(folder / "f", 5), "12345");
    const Result<std::string> text = read_text(folder / "f", 4);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, ErrorCode::bad_data);
}

TEST(FileDeathTest, RangesOutsideTheFileAreBugs) {
    const TestFolder folder;
    const Result<InputFile> input = InputFile::open(folder.write("f", "123"));
    std::string text(2, '?');
    EXPECT_DEATH((void)input->read(2, std::as_writable_bytes(std::span(text))), "CHECK failed");
}

std::vector<std::string> names_in(const TestFolder& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        names.push_back(entry.path().filename());
    }
    return names;
}

TEST(SaveText, ReplacesAFileWholeOrNotAtAll) {
    const TestFolder folder;
    ASSERT_TRUE(save_text(folder / "f", "first").ok());
    ASSERT_TRUE(save_text(folder / "f", "second").ok());
    EXPECT_EQ(bytes_of_file(folder / "f"), "second");
    const Status there = save_text(folder / "f", "third", Existing::refused);
    EXPECT_EQ(there.error().code, ErrorCode::usage);
    EXPECT_THAT(there.error().text(), HasSubstr("there already"));
    EXPECT_EQ(bytes_of_file(folder / "f"), "second");
    ASSERT_TRUE(save_text(folder / "g", "new", Existing::refused).ok());
    EXPECT_THAT(names_in(folder), testing::UnorderedElementsAre("f", "g"));
}

// A rename would put a file where the device, the pipe or the link was.
TEST(SaveText, WritesToWhatIsNoPlainFileAndNeverReplacesIt) {
    const TestFolder folder;
    std::filesystem::create_symlink(folder / "target", folder / "link");
    EXPECT_FALSE(save_text(folder / "link", "to nowhere").ok());
    folder.write("target", "old and longer");
    ASSERT_TRUE(save_text(folder / "link", "new").ok());
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
    EXPECT_EQ(bytes_of_file(folder / "target"), "new");
    std::filesystem::create_symlink("/dev/full", folder / "full");
    const Status full = save_text(folder / "full", "no room");
    EXPECT_THAT(full.error().text(), HasSubstr("No space left"));
    EXPECT_TRUE(std::filesystem::is_character_file(folder / "full"));
    EXPECT_THAT(names_in(folder), testing::UnorderedElementsAre("link", "target", "full"));
}

TEST(SaveText, LeavesNothingWhereItFails) {
    const TestFolder folder;
    for (const auto& [path, said] :
         {std::pair{folder / "absent/f", "No such file"}, {folder.path(), "it is a folder"}}) {
        const Status saved = save_text(path, "text");
        ASSERT_FALSE(saved.ok()) << path;
        EXPECT_THAT(saved.error().text(), HasSubstr(said));
        const Status possible = check_can_write(path);
        ASSERT_FALSE(possible.ok()) << path;
        EXPECT_THAT(possible.error().text(), HasSubstr(said));
    }
    EXPECT_TRUE(check_can_write(folder / "f").ok());
    EXPECT_THAT(names_in(folder), testing::IsEmpty());
    const std::string beside = std::filesystem::path(folder.path()).parent_path() /
                               (std::filesystem::path(folder.path()).filename().string() + ".tmp");
    EXPECT_FALSE(std::filesystem::exists(beside));
}

// What finds no room is not there, and what it was to replace is as it was.
TEST(SaveText, KeepsWhatWasThereOnAFullDrive) {
    const TestFolder folder;
    folder.write("f", "as it was");
    const rlimit small{.rlim_cur = 64, .rlim_max = RLIM_INFINITY};
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status replaced = save_text(folder / "f", std::string(1000, 'x'));
    const Status made = save_text(folder / "g", std::string(1000, 'x'), Existing::refused);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    EXPECT_THAT(replaced.error().text(), HasSubstr("File too large"));
    EXPECT_THAT(made.error().text(), HasSubstr("File too large"));
    EXPECT_THAT(names_in(folder), testing::ElementsAre("f"));
    EXPECT_EQ(bytes_of_file(folder / "f"), "as it was");
}

}  // namespace
}  // namespace headrace::engine
