// The row kernels: what a block computes between its matrix products, one pass over memory each,
// without a temporary. One source (kernels/host/row_kernels_body.h), compiled once per
// instruction set with vectors of its width: every lane does the same operations in the same order,
// none of them fused, so all rows of the table give the same bits. A sum over a row's elements has
// 16 lanes, element i in lane i % 16, joined by halves; a result never depends on alignment, on the
// rows beside it, or on threads: a function has none.
//
// exp is accurate to 2 units in the last place; beyond -87.3 it stays at exp(-87.3).
#pragma once

#include <span>
#include <string_view>

#include "kernels/host/isa.h"
#include "kernels/host/row_operands.h"
#include "offload/dtype.h"

namespace headrace::kernels {

struct RowKernels {
    std::string_view name;
    Isa required_isa = Isa::baseline;
    RowFunctions functions;
};

// All rows, best first; the last one, baseline, runs everywhere.
std::span<const RowKernels> row_kernels();
const RowKernels& best_row_kernels();

Element element_of(offload::Dtype dtype);

}  // namespace headrace::kernels
