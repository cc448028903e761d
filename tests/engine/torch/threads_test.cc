// Goal: a program can start itself over with a quiet OpenMP runtime, once.
// Method: a child starts over as this program with a flag that makes it end with 0: had the call
// returned, the child would end with another code, and had it started over again and again, never.
#include "engine/torch/threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "engine/torch/llama.h"

namespace headrace::engine {
namespace {

// The child becomes this program again; --gtest_list_tests makes that one end at once, with 0.
[[noreturn]] void start_over() {
    for (const char* name :
         {"HEADRACE_STARTED_WITHOUT_SPINNING", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
        unsetenv(name);
    }
    std::string name = "threads_test";
    std::string flag = "--gtest_list_tests";
    std::array<char*, 3> values = {name.data(), flag.data(), nullptr};
    const offload::Status status = reexec_without_spinning(2, values.data());
    _exit(status.ok() ? 3 : 4);  // not reached: another image runs by now
}

TEST(ThreadsDeathTest, StartsOverOnce) {
    EXPECT_EXIT(start_over(), testing::ExitedWithCode(0), "");
}

TEST(Threads, RespectsWhatTheUserChose) {
    setenv("OMP_WAIT_POLICY", "active", 1);
    std::string name = "threads_test";
    std::array<char*, 2> values = {name.data(), nullptr};
    EXPECT_TRUE(reexec_without_spinning(1, values.data()).ok());
    EXPECT_STREQ(getenv("OMP_WAIT_POLICY"), "active");
    unsetenv("OMP_WAIT_POLICY");
}

TEST(Threads, TheRecordTellsHowMatricesAreMultiplied) {
    start_torch(1);
    EXPECT_NE(matmul_description(offload::Dtype::fp32).find("fp32 mkl"), std::string::npos);
    EXPECT_FALSE(matmul_description(offload::Dtype::bf16).empty());
    EXPECT_EQ(torch_version().rfind("torch 2.", 0), 0u);
}

}  // namespace
}  // namespace headrace::engine
