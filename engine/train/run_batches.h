// The micro-batches of a run, as its run file says them: for whoever trains, and for whoever only
// places or rehearses the same run.
#pragma once

#include <vector>

#include "engine/config/run_config.h"
#include "engine/data/batch_plan.h"

namespace headrace::engine {

BatchOptions train_batches(const RunConfig& config);
BatchOptions eval_batches(const RunConfig& config, const Dataset& data);

// Of training; then, where there is data for it, of evaluation.
std::vector<MicroBatchShape> largest_shapes(const RunConfig& config, const Dataset& train_data,
                                            const Dataset* eval_data);

}  // namespace headrace::engine
