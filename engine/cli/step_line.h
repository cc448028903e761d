// The log line of a step, for people; programs read metrics.jsonl (engine/train/metrics.h).
#pragma once

#include <string>

#include "engine/train/metrics.h"

namespace headrace::engine {

// "step=12/30 loss=2.3456 grad_norm=1.234 lr=1.00e-05 tok/s=1234 time_ms=987 nvme_gb_per_s=1.23",
// and what is unusual: micro_batches=2 in the short last step of an epoch (full_micro_batch_count
// is what a whole step has), masked_micro_batches=1, skipped.
std::string step_line(const StepRecord& record, int64_t full_micro_batch_count);

// "eval step=12 loss=3.4567 trained_tokens=6400 time_ms=1234"
std::string eval_line(const EvalRecord& record);

}  // namespace headrace::engine
