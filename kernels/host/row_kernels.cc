#include "kernels/host/row_kernels.h"

#include <array>

#include "offload/check.h"

namespace headrace::kernels {

namespace {

static_assert(static_cast<int>(Element::fp32) == static_cast<int>(offload::Dtype::fp32));
static_assert(static_cast<int>(Element::bf16) == static_cast<int>(offload::Dtype::bf16));
static_assert(static_cast<int>(Element::fp16) == static_cast<int>(offload::Dtype::fp16));

void check_row(const RowKernels& row) {
    CHECK(row.functions.rms_norm != nullptr);
    CHECK(row.functions.rms_norm_backward != nullptr);
    CHECK(row.functions.swiglu != nullptr);
    CHECK(row.functions.swiglu_backward != nullptr);
    CHECK(row.functions.add_residual != nullptr);
    CHECK(row.functions.cross_entropy != nullptr);
    CHECK(row.functions.convert != nullptr);
    CHECK(row.functions.add_gradient != nullptr);
}

const std::array<RowKernels, 3>& table() {
    static const std::array<RowKernels, 3> rows = {{
        {"avx512", Isa::avx512f, row_functions_avx512},
        {"avx2", Isa::avx2_fma_f16c, row_functions_avx2},
        {"baseline", Isa::baseline, row_functions_baseline},
    }};
    return rows;
}

}  // namespace

std::span<const RowKernels> row_kernels() {
    return table();
}

const RowKernels& best_row_kernels() {
    for (const RowKernels& row : table()) {
        check_row(row);
        if (has(row.required_isa)) return row;
    }
    CHECK(false);
    return table().back();
}

Element element_of(offload::Dtype dtype) {
    return static_cast<Element>(dtype);
}

}  // namespace headrace::kernels
