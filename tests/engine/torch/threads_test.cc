// Goal: the numerics record tells what computes.
// Method: a process with torch set up is asked.
#include "engine/torch/threads.h"

#include <gtest/gtest.h>

#include "engine/torch/llama.h"

namespace headrace::engine {
namespace {

TEST(Threads, TheRecordTellsHowMatricesAreMultiplied) {
    start_torch(1);
    EXPECT_NE(matmul_description(offload::Dtype::fp32).find("fp32 mkl"), std::string::npos);
    EXPECT_FALSE(matmul_description(offload::Dtype::bf16).empty());
    EXPECT_EQ(torch_version().rfind("torch 2.", 0), 0u);
}

}  // namespace
}  // namespace headrace::engine
