// How much torch memory a compute call needs at most. The terms are the tensors alive at the worst
// moment of each call; a test holds the sum against the allocator's measurement.
#pragma once

#include <cstdint>

#include "engine/models/llama.h"
#include "engine/torch/ops/matmul.h"
#include "offload/dtype.h"

namespace headrace::engine {

struct WorkspaceShape {
    int64_t row_count = 0;
    int64_t column_count = 0;
    int64_t thread_count = 0;  // attention keeps a scratch tile per thread
};

uint64_t workspace_bytes_of(const LlamaConfig& config, offload::Dtype dtype, MatmulPath path,
                            const WorkspaceShape& shape);

}  // namespace headrace::engine
