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

}  // namespace
}  // namespace headrace::engine
