// A training step of made-up tokens, for a rehearsal without data: every sample as long as the run
// file lets it be, and all of it trained. Pure: the same step twice has the same tokens.
#pragma once

#include <cstdint>

#include "engine/config/run_config.h"
#include "engine/data/batch_plan.h"
#include "engine/models/llama.h"

namespace headrace::engine {

StepBatch made_up_step(const RunConfig& config, const LlamaConfig& model, int64_t step);

}  // namespace headrace::engine
