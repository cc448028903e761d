// The door from tensors to the row kernels (kernels/host/row_kernels.h): formats, and loops over
// torch's threads in blocks of fixed size, so that bits do not depend on their number.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <functional>

#include "kernels/host/row_operands.h"

namespace headrace::engine {

// The best rows of this machine.
const kernels::RowFunctions& row_functions();

kernels::Element element_of(at::ScalarType type);

// The formats of a storage dtype and its work dtype (ops/matmul.h).
kernels::Formats formats_of(at::ScalarType storage);

// Calls body(first, count) for blocks of elements, on torch's threads.
void for_element_blocks(int64_t element_count,
                        const std::function<void(int64_t first, int64_t count)>& body);

// Rows of norms and of their weights' partial gradients that one thread takes at a time.
inline constexpr int64_t norm_block_rows = 32;

// target = source, element by element, rounded once. Both are matrices whose rows are contiguous.
void convert(const at::Tensor& source, const at::Tensor& target);

// x itself where it has this type, else a copy that has.
at::Tensor converted(const at::Tensor& x, at::ScalarType type);

}  // namespace headrace::engine
