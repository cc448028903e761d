#include "offload/dtype.h"

#include <string>

namespace headrace::offload {

std::string_view name_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp32: return "fp32";
        case Dtype::bf16: return "bf16";
        case Dtype::fp16: return "fp16";
    }
    CHECK(false);
}

Result<Dtype> parse_dtype(std::string_view name) {
    if (name == "fp32" || name == "float32" || name == "float") return Dtype::fp32;
    if (name == "bf16" || name == "bfloat16") return Dtype::bf16;
    if (name == "fp16" || name == "float16" || name == "half") return Dtype::fp16;
    return Error{ErrorCode::usage,
                 "'" + std::string(name) + "' is no dtype; known are bf16, fp16 and fp32", ""};
}

}  // namespace headrace::offload
