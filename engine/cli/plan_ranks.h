// `headrace plan ... --ranks N --stage S`: whether a model's states fit on N cards under ZeRO, by
// arithmetic alone (offload/zero.h): bytes of weights, gradients and states, nothing of activations
// and nothing of time. Training itself is one process yet.
#pragma once

#include <string>

#include "engine/cli/command_line.h"
#include "engine/config/machine_file.h"
#include "engine/config/run_config.h"
#include "engine/models/llama.h"
#include "offload/result.h"

namespace headrace::engine {

// Where the run file puts parameters and optimizer states on one tier they lie there, else on the
// card; the machine is one node. The lines to print. Errors: usage (weights off the card below
// stage 3), does_not_fit with the nearest that fits.
offload::Result<std::string> judge_ranks(const PlanCommand& command, const RunConfig& config,
                                         const LlamaConfig& model, const MachineFile& machine);

}  // namespace headrace::engine
