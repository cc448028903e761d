// Goal: a child's exit, its last words and its absence arrive as values.
// Method: small shell commands.
#include "engine/data/child.h"

#include <gmock/gmock.h>

namespace headrace::engine {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ChildTest, output_and_exit_code_come_back) {
    const auto child = run_child({"sh", "-c", "echo out; echo err >&2; exit 3"});
    ASSERT_TRUE(child.ok()) << child.error().text();
    EXPECT_EQ(child->exit_code, 3);
    EXPECT_EQ(child->output, "out\nerr\n");
}

TEST(ChildTest, arguments_are_not_words_of_a_shell_and_stdin_is_empty) {
    const auto child = run_child({"sh", "-c", "cat; printf %s \"$1\"", "sh", "a b; *"});
    ASSERT_TRUE(child.ok()) << child.error().text();
    EXPECT_EQ(child->output, "a b; *");
    EXPECT_EQ(child->exit_code, 0);
}

TEST(ChildTest, only_the_end_of_a_long_output_is_kept) {
    const auto child = run_child({"sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo end"});
    ASSERT_TRUE(child.ok()) << child.error().text();
    EXPECT_EQ(child->output.size(), child_output_bytes_max);
    EXPECT_THAT(child->output, EndsWith("xend\n"));
}

TEST(ChildTest, a_signal_is_128_and_its_number) {
    const auto child = run_child({"sh", "-c", "kill -9 $$"});
    ASSERT_TRUE(child.ok()) << child.error().text();
    EXPECT_EQ(child->exit_code, 137);
}

TEST(ChildTest, a_program_that_is_not_there_is_an_error) {
    const auto child = run_child({"/nowhere/program"});
    ASSERT_FALSE(child.ok());
    EXPECT_THAT(child.error().text(), HasSubstr("cannot start '/nowhere/program': No such file"));
}

}  // namespace
}  // namespace headrace::engine
