// Goal: the CUDA module, where it was built, loads on any machine and says what it is and sees;
// where it is missing or foreign, the error says what to do.
// Method: the built module; a path with nothing at it; files that are no such module.
#include "kernels/cuda_module.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace headrace::kernels {

#ifdef HEADRACE_HAS_CUDA_MODULE
TEST(CudaModule, loads_with_or_without_a_driver_and_says_what_it_is) {
    const auto text = describe_cuda(cuda_module_path());
    ASSERT_TRUE(text.ok()) << text.error().text();
    EXPECT_EQ(text->find("CUDA runtime "), 0u) << *text;
    EXPECT_NE(text->find("torch " HEADRACE_TORCH_VERSION ","), std::string::npos) << *text;
    const bool names_device = text->find("compute capability") != std::string::npos;
    const bool says_none = text->find("no device") != std::string::npos;
    EXPECT_NE(names_device, says_none) << *text;
    EXPECT_EQ(*describe_cuda(cuda_module_path()), *text);
    RecordProperty("text", *text);
}
#endif

TEST(CudaModule, path_is_beside_the_program) {
    const std::filesystem::path path = cuda_module_path();
    EXPECT_TRUE(path.is_absolute());
    EXPECT_EQ(path.filename(), "libheadrace_cuda.so");
    EXPECT_TRUE(std::filesystem::is_directory(path.parent_path()));
}

TEST(CudaModule, a_missing_module_says_that_the_build_had_no_toolkit) {
    const auto text = describe_cuda("/nowhere/libheadrace_cuda.so");
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().text().find("no CUDA toolkit"), std::string::npos);
    EXPECT_NE(text.error().text().find("device: host"), std::string::npos);
}

TEST(CudaModule, a_foreign_file_is_an_error) {
    const std::string path = testing::TempDir() + "/libheadrace_cuda_foreign.so";
    std::ofstream(path) << "not a library";
    const auto text = describe_cuda(path);
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().text().find("build again"), std::string::npos) << text.error().text();
    std::filesystem::remove(path);
}

}  // namespace headrace::kernels
