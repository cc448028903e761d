// Goal: the code that a card would run has the bits of the host twin, on machines without a card;
// and what guards that (no instruction that may be fused, flushed or approximated) is itself seen.
// Method: adamw.cu compiled to PTX with the module's own flags, run by tests/kernels/cuda/
// ptx_machine.h over a grid that is smaller than the elements, so that threads go round.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/kernels/cuda/ptx_machine.h"
#include "tests/kernels/update_case.h"

namespace headrace::kernels {
namespace {

std::string ptx_text() {
    std::ifstream file(HEADRACE_ADAMW_PTX);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string kernel_name(const CaseShape& shape) {
    if (shape.moments == CaseMoments::int8) return "update_blocks";
    const auto flag = [](bool is_set) { return is_set ? "Lb1E" : "Lb0E"; };
    return std::string("update_allI") + flag(shape.weight == CaseWeight::split) +
           flag(shape.gradient == CaseGradient::bf16) + flag(shape.moments == CaseMoments::bf16) +
           "EE";
}

TEST(CudaAdamwPtx, has_the_bits_of_the_host_twin) {
    const std::string text = ptx_text();
    for (CaseShape shape : case_shapes()) {
        const auto kernel = PtxKernel::parse(text, kernel_name(shape));
        ASSERT_TRUE(kernel.ok()) << kernel.error().text();
        for (const uint64_t element_count : {1u, 4u, 1023u, 2050u}) {
            shape.element_count = element_count;
            UpdateCase twin = make_case(shape, 13);
            UpdateCase card = twin;
            for (const UpdateFactors& factors : case_factors()) {
                const UpdateCase before = card;
                const UpdateOperands operands = card.operands();
                kernel->run({.block_count = 3, .threads_per_block = 64},
                            {std::as_bytes(std::span(&factors, 1)),
                             std::as_bytes(std::span(&operands, 1))});
                update_on_host(factors, twin.operands());
                EXPECT_TRUE(card == twin) << kernel_name(shape) << ", " << element_count;
                EXPECT_FALSE(card == before);
            }
        }
    }
}

TEST(CudaAdamwPtx, what_may_be_fused_flushed_or_approximated_is_refused) {
    const std::string text = ptx_text();
    const std::string name = kernel_name({});
    ASSERT_TRUE(PtxKernel::parse(text, name).ok());
    for (const auto& [exact, loose] :
         {std::pair("mul.rn.f32", "mul.f32"), std::pair("fma.rn.f32", "fma.rn.ftz.f32"),
          std::pair("div.rn.f32", "div.approx.f32"), std::pair("sqrt.rn.f32", "sqrt.approx.f32")}) {
        std::string changed = text;
        const size_t at = changed.find(exact, changed.find(name));
        ASSERT_NE(at, std::string::npos) << exact;
        changed.replace(at, std::string(exact).size(), loose);
        const auto refused = PtxKernel::parse(changed, name);
        ASSERT_FALSE(refused.ok()) << loose;
        EXPECT_NE(refused.error().text().find(loose), std::string::npos);
    }
    EXPECT_FALSE(PtxKernel::parse(text, "no_such_kernel").ok());
}

}  // namespace
}  // namespace headrace::kernels
