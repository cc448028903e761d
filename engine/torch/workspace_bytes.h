// How much torch memory a compute call needs at most. The terms are the tensors alive at the worst
// moment of each call; a test holds the sum against the allocator's measurement. Arithmetic alone,
// without torch, so that a plan needs none.
#pragma once

#include <cstdint>

#include "engine/models/llama.h"
#include "engine/torch/block_shape.h"

namespace headrace::engine {

struct WorkspaceShape {
    BlockShape block;
    offload::Dtype work = offload::Dtype::fp32;  // what is multiplied: ops/matmul_sizes.h
    int64_t thread_count = 0;                    // attention keeps scratch per thread
    Kernels kernels = Kernels::fused;
};

// On a card: it multiplies what is stored, and its attention's scratch is no thread's.
WorkspaceShape shape_on_card(const BlockShape& block, Kernels kernels);

uint64_t workspace_bytes_of(const LlamaConfig& config, const WorkspaceShape& shape);

}  // namespace headrace::engine
