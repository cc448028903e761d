// Goal: a process that the system gives no memory or no thread says so in one line and leaves with
// 1; other exceptions abort as ever.
// Method: children that throw what the library throws, on main and on another thread; a child under
// a limit of addresses. (With torch: main_test.cc.)
#include "engine/cli/last_words.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace headrace::engine {
namespace {

template <class Exception>
[[noreturn]] void end_by(Exception exception) {
    tell_what_was_refused();
    std::thread([&] { throw exception; }).join();
    _exit(9);  // not reached
}

TEST(LastWordsDeathTest, WhatTheSystemRefusedIsOneLine) {
    EXPECT_EXIT(end_by(std::bad_alloc()), testing::ExitedWithCode(1),
                "^headrace: the system refused memory: [^\n]*\n$");
    EXPECT_EXIT(end_by(std::system_error(EAGAIN, std::generic_category())),
                testing::ExitedWithCode(1), "^headrace: the system refused a thread: [^\n]*\n$");
}

TEST(LastWordsDeathTest, OtherExceptionsAbort) {
    EXPECT_DEATH(end_by(std::runtime_error("a bug")), "a bug");
    EXPECT_DEATH(end_by(std::system_error(EPERM, std::generic_category())), "not permitted");
}

[[noreturn]] void end_under_a_limit() {
    const rlimit limit{.rlim_cur = 768 << 20, .rlim_max = 768 << 20};
    setrlimit(RLIMIT_AS, &limit);
    end_by(std::bad_alloc());
}

TEST(LastWordsDeathTest, ALimitIsNamed) {
    EXPECT_EXIT(end_under_a_limit(), testing::ExitedWithCode(1), "have 768 MiB.*ulimit -v");
    EXPECT_EQ(address_limit_bytes(), std::numeric_limits<uint64_t>::max()) << "none is set here";
}

}  // namespace
}  // namespace headrace::engine
