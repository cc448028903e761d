#include "engine/torch/workspace_bytes.h"
namespace headrace::engine {
uint64_t workspace_bytes_of(const LlamaConfig&, offload::Dtype, MatmulPath, const WorkspaceShape&) {
    return 0;
}
}  // namespace headrace::engine
