#include "engine/train/run_batches.h"

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

BatchOptions train_batches(const RunConfig& config) {
    return {.row_count = config.per_device_train_batch_size,
            .micro_batches_per_step = config.gradient_accumulation_steps,
            .epoch_count = config.num_train_epochs,
            .step_count = config.max_steps,
            .order = config.shuffle ? SampleOrder::shuffled : SampleOrder::as_given,
            .seed = config.seed};
}

BatchOptions eval_batches(const RunConfig& config, const Dataset& data) {
    const int64_t rows = config.per_device_eval_batch_size;
    return {.row_count = rows,
            .micro_batches_per_step = static_cast<int64_t>(offload::div_ceil(
                static_cast<uint64_t>(data.sample_count()), static_cast<uint64_t>(rows))),
            .epoch_count = 1,
            .step_count = {},
            .order = SampleOrder::by_length};
}

std::vector<MicroBatchShape> largest_shapes(const RunConfig& config, const Dataset& train_data,
                                            const Dataset* eval_data) {
    BatchPlan training(train_data, train_batches(config));
    std::vector<MicroBatchShape> shapes = {training.max_micro_batch_shape()};
    if (eval_data != nullptr) {
        BatchPlan evaluation(*eval_data, eval_batches(config, *eval_data));
        shapes.push_back(evaluation.max_micro_batch_shape());
    }
    CHECK(!shapes.empty());
    return shapes;
}

}  // namespace headrace::engine
