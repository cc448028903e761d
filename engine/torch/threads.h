// Setting torch up once per process: engine/torch/llama.h has start_torch().
#pragma once

#include "offload/dtype.h"

namespace headrace::engine {

// A matrix product as those of `dtype`, so that torch has loaded and set up what it needs for any:
// what the process holds afterwards is what it costs before a model is there. After start_torch().
void warm_up_torch(offload::Dtype dtype);

}  // namespace headrace::engine
