#include "engine/data/batch_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/data/shuffle.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::align_up;
using offload::div_ceil;

StepBatch make_step(std::vector<TokenBatch> micro_batches) {
    CHECK(!micro_batches.empty());
    StepBatch step;
    for (const TokenBatch& batch : micro_batches) {
        CHECK_EQ(batch.input_ids.size(), batch.targets.size());
        step.token_count += batch.token_count;
        step.trained_token_count += batch.trained_token_count;
        step.masked_micro_batch_count += batch.trained_token_count == 0 ? 1 : 0;
    }
    CHECK_LE(step.trained_token_count, step.token_count);
    step.micro_batches = std::move(micro_batches);
    return step;
}

BatchPlan::BatchPlan(const Dataset& dataset, const BatchOptions& options)
    : dataset_(&dataset), options_(options) {
    CHECK_GE(dataset.sample_count(), 1);
    CHECK_LE(dataset.sample_count(), int64_t{std::numeric_limits<uint32_t>::max()});
    CHECK_GE(options.row_count, 1);
    CHECK_GE(options.micro_batches_per_step, 1);
    CHECK(options.step_count ? *options.step_count >= 1 : options.epoch_count > 0);
    micro_batches_per_epoch_ =
        static_cast<int64_t>(div_ceil(dataset.sample_count(), options.row_count));
    steps_per_epoch_ =
        static_cast<int64_t>(div_ceil(micro_batches_per_epoch_, options.micro_batches_per_step));
    const double steps = std::ceil(options.epoch_count * static_cast<double>(steps_per_epoch_));
    CHECK(options.step_count || steps < 9e15);
    step_count_ = options.step_count.value_or(static_cast<int64_t>(steps));
    CHECK_GE(step_count_, 1);
}

int64_t BatchPlan::micro_batch_count_of(int64_t step_index) const {
    CHECK(step_index >= 0 && step_index < step_count_);
    const int64_t first = (step_index % steps_per_epoch_) * options_.micro_batches_per_step;
    CHECK_LT(first, micro_batches_per_epoch_);
    return std::min(options_.micro_batches_per_step, micro_batches_per_epoch_ - first);
}

StepBatch BatchPlan::step(int64_t step_index) {
    const int64_t micro_batch_count = micro_batch_count_of(step_index);
    const std::span<const uint32_t> order = order_of(step_index / steps_per_epoch_);
    std::vector<TokenBatch> micro_batches;
    for (int64_t i = 0; i < micro_batch_count; ++i) {
        const int64_t first =
            ((step_index % steps_per_epoch_) * options_.micro_batches_per_step + i) *
            options_.row_count;
        const int64_t rows = std::min(options_.row_count, dataset_->sample_count() - first);
        CHECK_GE(rows, 1);
        micro_batches.push_back(make_micro_batch(order.subspan(first, rows)));
    }
    StepBatch step = make_step(std::move(micro_batches));
    const int64_t steps_into_epoch = step_index % steps_per_epoch_ + 1;
    step.epoch = static_cast<double>(step_index / steps_per_epoch_) +
                 static_cast<double>(steps_into_epoch) / static_cast<double>(steps_per_epoch_);
    return step;
}

MicroBatchShape BatchPlan::max_micro_batch_shape() {
    MicroBatchShape most;
    for (int64_t first_step = 0; first_step < step_count_; first_step += steps_per_epoch_) {
        const std::vector<uint32_t>& order = order_of(first_step / steps_per_epoch_);
        const int64_t steps = std::min(steps_per_epoch_, step_count_ - first_step);
        const int64_t sample_count = std::min(
            steps * options_.micro_batches_per_step * options_.row_count, dataset_->sample_count());
        most.row_count = std::max(most.row_count, std::min(options_.row_count, sample_count));
        for (int64_t i = 0; i < sample_count; ++i) {
            most.column_count = std::max(most.column_count, dataset_->token_count_of(order[i]));
        }
    }
    CHECK_GE(most.column_count, 1);
    most.column_count = static_cast<int64_t>(align_up(most.column_count, column_bucket));
    return most;
}

const std::vector<uint32_t>& BatchPlan::order_of(int64_t epoch) {
    CHECK_GE(epoch, 0);
    const auto sample_count = static_cast<uint32_t>(dataset_->sample_count());
    const bool changes = options_.order == SampleOrder::shuffled;
    if (ordered_epoch_ >= 0 && (epoch == ordered_epoch_ || !changes)) return order_;
    if (options_.order == SampleOrder::shuffled) {
        order_ = shuffled_order(sample_count,
                                {.seed = options_.seed, .epoch = static_cast<uint64_t>(epoch)});
    } else {
        order_.resize(sample_count);
        std::iota(order_.begin(), order_.end(), 0u);
    }
    if (options_.order == SampleOrder::by_length) {
        std::ranges::stable_sort(
            order_, {}, [this](uint32_t sample) { return dataset_->token_count_of(sample); });
    }
    ordered_epoch_ = epoch;
    CHECK_EQ(order_.size(), size_t{sample_count});
    return order_;
}

TokenBatch BatchPlan::make_micro_batch(std::span<const uint32_t> samples) const {
    CHECK(!samples.empty());
    TokenBatch batch;
    int64_t longest = 0;
    for (const uint32_t index : samples)
        longest = std::max(longest, dataset_->token_count_of(index));
    batch.row_count = static_cast<int64_t>(samples.size());
    batch.column_count = static_cast<int64_t>(align_up(longest, column_bucket));
    batch.input_ids.resize(batch.row_count * batch.column_count, 0);
    batch.targets.resize(batch.row_count * batch.column_count, not_trained);
    for (int64_t row = 0; row < batch.row_count; ++row) {
        const Sample sample = dataset_->sample(samples[row]);
        CHECK(!sample.input_ids.empty());
        const int64_t at = row * batch.column_count;
        std::ranges::copy(sample.input_ids, batch.input_ids.begin() + at);
        std::ranges::copy(sample.labels.subspan(1), batch.targets.begin() + at);
        batch.token_count += static_cast<int64_t>(sample.input_ids.size());
        batch.trained_token_count += count_trained(sample.labels);
    }
    return batch;
}

}  // namespace headrace::engine
