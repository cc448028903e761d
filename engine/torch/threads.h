// Setting torch up once per process: engine/torch/llama.h has start_torch().
#pragma once

namespace headrace::engine {

// One matrix product, so that torch has loaded and set up what it needs for any: what the process
// holds afterwards is what it costs before a model is there. After start_torch().
void warm_up_torch();

}  // namespace headrace::engine
