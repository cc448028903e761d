#include "engine/rehearse/made_up_step.h"

#include <algorithm>
#include <utility>

namespace headrace::engine {

namespace {

// Made-up tokens are below this, and below the vocabulary.
constexpr int64_t made_up_tokens = 1000;

}  // namespace

StepBatch made_up_step(const RunConfig& config, const LlamaConfig& model, int64_t step) {
    const auto end = std::min<int64_t>(made_up_tokens, model.vocabulary_size);
    std::vector<TokenBatch> batches;
    for (int64_t m = 0; m < config.gradient_accumulation_steps; ++m) {
        TokenBatch batch{.row_count = config.per_device_train_batch_size,
                         .column_count = config.max_length};
        batch.token_count = batch.row_count * batch.column_count;
        for (int64_t t = 0; t < batch.token_count; ++t) {
            batch.input_ids.push_back(static_cast<int32_t>((t * 7 + m * 13 + step) % end));
        }
        for (int64_t t = 0; t < batch.token_count; ++t) {
            const bool is_last = (t + 1) % batch.column_count == 0;
            batch.targets.push_back(is_last ? not_trained
                                            : batch.input_ids[static_cast<size_t>(t) + 1]);
        }
        batch.trained_token_count = batch.token_count - batch.row_count;
        batches.push_back(std::move(batch));
    }
    return make_step(std::move(batches));
}

}  // namespace headrace::engine
