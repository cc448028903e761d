// Goal: the program itself leaves with the documented codes, and says on the right stream why.
// Method: the built program is run; stdout and stderr come together.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "engine/data/child.h"
#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ChildOutcome run_words(const std::vector<std::string>& words) {
    const auto child = run_child(words);
    CHECK_TEXT(child.ok(), child.error().text());
    return *child;
}

ChildOutcome run(std::vector<std::string> words) {
    words.insert(words.begin(), HEADRACE_PROGRAM);
    return run_words(words);
}

TEST(MainTest, help_and_version_are_0) {
    EXPECT_EQ(run({"--help"}).exit_code, 0);
    EXPECT_THAT(run({"--version"}).output, StartsWith("headrace 0."));
}

TEST(MainTest, a_wrong_command_line_and_a_wrong_config_are_2) {
    EXPECT_EQ(run({}).exit_code, 2);
    EXPECT_EQ(run({"trian"}).exit_code, 2);
    const ChildOutcome child = run({"train", "m", "d", "learnign_rate=1"});
    EXPECT_EQ(child.exit_code, 2);
    EXPECT_THAT(child.output,
                HasSubstr("headrace: cannot use this configuration: command line: "
                          "learnign_rate: unknown key; did you mean 'learning_rate'?"));
}

TEST(MainTest, a_model_that_is_not_there_is_4) {
    const TestFolder folder;
    EXPECT_EQ(run({"train", folder.path("absent"), folder.path("d.jsonl")}).exit_code, 4);
}

TEST(MainTest, init_prints_a_run_file_and_doctor_a_table) {
    EXPECT_THAT(run({"init", "org/name", "d.jsonl"}).output, HasSubstr("\nmodel: org/name"));
    const ChildOutcome doctor = run({"doctor"});
    EXPECT_EQ(doctor.exit_code, 0);
    EXPECT_THAT(doctor.output, HasSubstr("io_uring"));
}

// Torch's libraries take 0.3 s to load.
TEST(MainTest, what_does_not_compute_loads_no_torch) {
    const auto loaded_by = [](const std::string& program) {
        return run_words({"env", "LD_TRACE_LOADED_OBJECTS=1", program}).output;
    };
    EXPECT_THAT(loaded_by(HEADRACE_PROGRAM), AllOf(HasSubstr("libc.so"), Not(HasSubstr("torch"))));
    EXPECT_THAT(loaded_by(HEADRACE_PROGRAM "_torch"), HasSubstr("libtorch_cpu.so"));
}

// The loader's own words, and those of an exception, would name neither limit nor remedy.
TEST(MainTest, too_few_addresses_are_told_in_a_line) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer takes more addresses than any limit";
#endif
    for (const char* limit : {"60000", "300000", "380000", "440000", "470000"}) {
        const ChildOutcome child =
            run_words({"sh", "-c", std::string("ulimit -v ") + limit + " && exec \"$0\" train m d",
                       HEADRACE_PROGRAM});
        EXPECT_EQ(child.exit_code, 1) << limit << child.output;
        EXPECT_THAT(child.output, StartsWith("headrace: ")) << limit;
        EXPECT_THAT(child.output, HasSubstr("ulimit -v")) << limit;
        EXPECT_EQ(std::ranges::count(child.output, '\n'), 1) << child.output;
    }
}

TEST(MainTest, a_program_copied_without_the_one_that_computes_says_so) {
    const TestFolder folder;
    const std::string copy = folder.path("headrace");
    std::filesystem::copy_file(HEADRACE_PROGRAM, copy);
    EXPECT_EQ(run_words({copy, "--version"}).exit_code, 0);
    const ChildOutcome child = run_words({copy, "train", "m", "d.jsonl"});
    EXPECT_EQ(child.exit_code, 1);
    EXPECT_THAT(child.output, HasSubstr("cannot start '" + copy + "_torch'"));
    EXPECT_THAT(child.output, HasSubstr("it belongs beside headrace"));
}

}  // namespace
}  // namespace headrace::engine
