// BatchPlan: which samples make up which step, as a pure function of the step index: a resume asks
// for step k and gets what the uninterrupted run got. Epoch e visits every sample once, in an order
// that depends on seed and e alone (engine/data/shuffle.h). The order is cut into micro-batches of
// `row_count` samples, those into steps of `micro_batches_per_step`. The last micro-batch of an
// epoch may have fewer rows and its last step fewer micro-batches; both are used, never dropped,
// and no micro-batch or step crosses into the next epoch.
//
// A micro-batch is padded on the right to its longest sample, rounded up to a multiple of
// column_bucket so that few shapes occur. Padding has token 0 and is not trained. Targets are
// shifted already: targets[t] = labels[t + 1], the last of a row is not_trained.
//
// The Dataset must outlive the plan. One thread at a time (step() keeps the current epoch's order).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/data/dataset.h"

namespace headrace::engine {

inline constexpr int64_t column_bucket = 8;

struct TokenBatch {
    int64_t row_count = 0;
    int64_t column_count = 0;
    std::vector<int32_t> input_ids = {};  // (rows, columns)
    std::vector<int32_t> targets = {};    // (rows, columns)
    int64_t token_count = 0;              // without padding
    int64_t trained_token_count = 0;
};

struct StepBatch {
    std::vector<TokenBatch> micro_batches;
    int64_t token_count = 0;               // without padding, all micro-batches
    int64_t trained_token_count = 0;       // what the loss is divided by
    int64_t masked_micro_batch_count = 0;  // micro-batches in which nothing is trained
    double epoch = 0;                      // after this step; 1.5 = half-way through the second

    // Nothing to train at all: the step must not update.
    bool is_masked() const { return trained_token_count == 0; }
};

// The step made of these micro-batches, its counts added up; `epoch` is left 0.
StepBatch make_step(std::vector<TokenBatch> micro_batches);

// by_length: shortest first, so that rows of a micro-batch need little padding; for evaluation,
// whose result is a sum.
enum class SampleOrder : uint8_t { as_given, shuffled, by_length };

struct BatchOptions {
    int64_t row_count = 1;
    int64_t micro_batches_per_step = 1;
    double epoch_count = 1;                  // may be a fraction
    std::optional<int64_t> step_count = {};  // wins over epoch_count; epochs repeat as needed
    SampleOrder order = SampleOrder::as_given;
    uint64_t seed = 0;  // shuffled
};

// The largest rows and the largest columns of any micro-batch of a plan.
struct MicroBatchShape {
    int64_t row_count = 0;
    int64_t column_count = 0;
    bool operator==(const MicroBatchShape&) const = default;
};

class BatchPlan {
  public:
    // CHECKs that the dataset has samples and the options are positive.
    BatchPlan(const Dataset& dataset, const BatchOptions& options);

    int64_t step_count() const { return step_count_; }
    int64_t steps_per_epoch() const { return steps_per_epoch_; }
    // Micro-batches of step `step_index`; fewer than asked in the last step of an epoch.
    int64_t micro_batch_count_of(int64_t step_index) const;

    StepBatch step(int64_t step_index);

    // Over all steps of the run: slots are sized by it. Costs one pass over all orders.
    MicroBatchShape max_micro_batch_shape();

  private:
    const std::vector<uint32_t>& order_of(int64_t epoch);
    TokenBatch make_micro_batch(std::span<const uint32_t> samples) const;

    const Dataset* dataset_;
    BatchOptions options_;
    int64_t micro_batches_per_epoch_ = 0;
    int64_t steps_per_epoch_ = 0;
    int64_t step_count_ = 0;
    int64_t ordered_epoch_ = -1;
    std::vector<uint32_t> order_;
};

}  // namespace headrace::engine
