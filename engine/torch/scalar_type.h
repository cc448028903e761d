// Dtypes by torch's names and by ours.
#pragma once

#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include "offload/dtype.h"

namespace headrace::engine {

inline at::ScalarType scalar_type_of(offload::Dtype dtype) {
    switch (dtype) {
        case offload::Dtype::fp32: return at::kFloat;
        case offload::Dtype::bf16: return at::kBFloat16;
        case offload::Dtype::fp16: return at::kHalf;
    }
    CHECK(false);
}

// CHECKs that it is one of the three that layers are computed in.
inline offload::Dtype dtype_of(at::ScalarType type) {
    switch (type) {
        case at::kFloat: return offload::Dtype::fp32;
        case at::kBFloat16: return offload::Dtype::bf16;
        case at::kHalf: return offload::Dtype::fp16;
        default: break;
    }
    CHECK_TEXT(false, "layers are computed in fp32, bf16 and fp16");
}

}  // namespace headrace::engine
