// Goal: a program becomes another, or itself again, with a quiet OpenMP runtime, or says why not.
// Method: a child starts over as this program with a flag that makes it end with 0; one becomes a
// shell, which ends with 0 where it finds the environment that it should.
#include "engine/cli/quiet_start.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace headrace::engine {
namespace {

using ::testing::HasSubstr;

void choose_nothing() {
    for (const char* name :
         {"HEADRACE_STARTED_WITHOUT_SPINNING", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
        unsetenv(name);
    }
}

// The child becomes this program again; --gtest_list_tests makes that one end at once, with 0.
[[noreturn]] void start_over() {
    choose_nothing();
    std::string name = "quiet_start_test";
    std::string flag = "--gtest_list_tests";
    std::array<char*, 3> values = {name.data(), flag.data(), nullptr};
    start_quietly(running_program(), values.data());
    _exit(3);  // not reached: another image runs by now
}

TEST(QuietStartDeathTest, starts_over) {
    EXPECT_EXIT(start_over(), testing::ExitedWithCode(0), "");
}

[[noreturn]] void become_a_shell(const char* script) {
    std::string name = "sh";
    std::string flag = "-c";
    std::string text = script;
    std::array<char*, 4> values = {name.data(), flag.data(), text.data(), nullptr};
    start_quietly("/bin/sh", values.data());
    _exit(3);
}

TEST(QuietStartDeathTest, threads_are_told_not_to_spin_unless_the_user_chose) {
    choose_nothing();
    EXPECT_FALSE(has_chosen_how_to_wait());
    EXPECT_EXIT(become_a_shell("[ \"$OMP_WAIT_POLICY $GOMP_SPINCOUNT\" = 'passive 0' ]"),
                testing::ExitedWithCode(0), "");
    setenv("OMP_WAIT_POLICY", "active", 1);
    EXPECT_TRUE(has_chosen_how_to_wait());
    EXPECT_EXIT(become_a_shell("[ \"$OMP_WAIT_POLICY $GOMP_SPINCOUNT\" = 'active ' ]"),
                testing::ExitedWithCode(0), "");
    unsetenv("OMP_WAIT_POLICY");
}

TEST(QuietStart, a_program_that_is_not_there_is_named) {
    choose_nothing();
    std::string name = "headrace";
    std::array<char*, 2> values = {name.data(), nullptr};
    const offload::Error error = start_quietly("/nowhere/headrace_torch", values.data());
    EXPECT_THAT(error.text(), HasSubstr("'/nowhere/headrace_torch'"));
    EXPECT_THAT(error.text(), HasSubstr("No such file"));
    choose_nothing();
}

}  // namespace
}  // namespace headrace::engine
