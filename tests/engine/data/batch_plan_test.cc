// Goal: each epoch visits every sample once, nothing is dropped, and a step is a pure function of
// its index; shapes and counts are exact.
// Method: samples whose first token is their number, so that a batch tells what is in it.
#include "engine/data/batch_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

using ::testing::ElementsAre;

// Sample i: the token i, then `lengths[i] - 1` tokens 50; only the last `trained` are trained.
Dataset samples(const std::vector<int64_t>& lengths, std::vector<int64_t> trained = {}) {
    const TestFolder folder;
    std::string text;
    for (size_t i = 0; i < lengths.size(); ++i) {
        std::string ids = std::to_string(i);
        std::string labels = "-100";
        const int64_t masked = trained.empty() ? 1 : lengths[i] - trained[i];
        for (int64_t t = 1; t < lengths[i]; ++t) {
            ids += ",50";
            labels += t < masked ? ",-100" : ",50";
        }
        text += "{\"input_ids\": [" + ids + "], \"labels\": [" + labels + "]}\n";
    }
    auto dataset = Dataset::read(
        {.path = folder.write("d.jsonl", text), .vocabulary_size = 1000, .max_length = 1000});
    CHECK_TEXT(dataset.ok(), dataset.error().text());
    return std::move(dataset).value();
}

std::vector<int32_t> first_tokens(const StepBatch& step) {
    std::vector<int32_t> tokens;
    for (const TokenBatch& batch : step.micro_batches) {
        for (int64_t row = 0; row < batch.row_count; ++row) {
            tokens.push_back(batch.input_ids[row * batch.column_count]);
        }
    }
    return tokens;
}

TEST(BatchPlanTest, rows_are_padded_on_the_right_and_targets_shifted) {
    const Dataset dataset = samples({3, 9}, {2, 1});
    BatchPlan plan(dataset, {.row_count = 2});
    ASSERT_EQ(plan.step_count(), 1);
    const StepBatch step = plan.step(0);
    ASSERT_EQ(step.micro_batches.size(), 1u);
    const TokenBatch& batch = step.micro_batches[0];
    EXPECT_EQ(batch.row_count, 2);
    EXPECT_EQ(batch.column_count, 16);
    EXPECT_THAT(batch.input_ids,
                ElementsAre(0, 50, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                            1, 50, 50, 50, 50, 50, 50, 50, 50, 0, 0, 0, 0, 0, 0, 0));
    const int n = not_trained;
    EXPECT_THAT(batch.targets, ElementsAre(50, 50, n, n, n, n, n, n, n, n, n, n, n, n, n, n,  //
                                           n, n, n, n, n, n, n, 50, n, n, n, n, n, n, n, n));
    EXPECT_EQ(batch.token_count, 12);
    EXPECT_EQ(batch.trained_token_count, 3);
    EXPECT_EQ(step.token_count, 12);
    EXPECT_EQ(step.trained_token_count, 3);
    EXPECT_EQ(step.epoch, 1.0);
    EXPECT_EQ(plan.max_micro_batch_shape(), (MicroBatchShape{2, 16}));
}

TEST(BatchPlanTest, acc_4_the_last_partial_window_is_used) {
    const Dataset dataset = samples(std::vector<int64_t>(10, 4));
    BatchPlan plan(dataset, {.row_count = 1, .micro_batches_per_step = 4});
    ASSERT_EQ(plan.step_count(), 3);
    EXPECT_EQ(plan.micro_batch_count_of(0), 4);
    EXPECT_EQ(plan.micro_batch_count_of(2), 2);
    EXPECT_EQ(plan.step(2).micro_batches.size(), 2u);
    EXPECT_THAT(first_tokens(plan.step(2)), ElementsAre(8, 9));
}

// 3 and 97 trained tokens: the loss is divided by the 100 of the whole window.
TEST(BatchPlanTest, acc_4_trained_tokens_are_counted_over_the_whole_window) {
    const Dataset dataset = samples({100, 100}, {3, 97});
    BatchPlan plan(dataset, {.row_count = 1, .micro_batches_per_step = 2});
    const StepBatch step = plan.step(0);
    EXPECT_EQ(step.micro_batches[0].trained_token_count, 3);
    EXPECT_EQ(step.micro_batches[1].trained_token_count, 97);
    EXPECT_EQ(step.trained_token_count, 100);
}

TEST(BatchPlanTest, the_last_micro_batch_of_an_epoch_may_have_fewer_rows) {
    const Dataset dataset = samples(std::vector<int64_t>(5, 4));
    BatchPlan plan(dataset, {.row_count = 2, .micro_batches_per_step = 2, .epoch_count = 2});
    ASSERT_EQ(plan.step_count(), 4);
    EXPECT_EQ(plan.step(1).micro_batches.size(), 1u);
    EXPECT_EQ(plan.step(1).micro_batches[0].row_count, 1);
    EXPECT_EQ(plan.step(0).epoch, 0.5);
    EXPECT_EQ(plan.step(1).epoch, 1.0);
    EXPECT_EQ(plan.step(2).epoch, 1.5);
    EXPECT_THAT(first_tokens(plan.step(2)), ElementsAre(0, 1, 2, 3));
}

TEST(BatchPlanTest, each_epoch_visits_all_samples_in_an_order_of_its_own) {
    const Dataset dataset = samples(std::vector<int64_t>(20, 4));
    BatchPlan plan(dataset, {.row_count = 3,
                             .micro_batches_per_step = 2,
                             .epoch_count = 3,
                             .order = SampleOrder::shuffled,
                             .seed = 1});
    std::set<std::vector<int32_t>> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<int32_t> order;
        for (int64_t i = 0; i < plan.steps_per_epoch(); ++i) {
            const auto tokens = first_tokens(plan.step(epoch * plan.steps_per_epoch() + i));
            order.insert(order.end(), tokens.begin(), tokens.end());
        }
        orders.insert(order);
        std::ranges::sort(order);
        ASSERT_EQ(order.size(), 20u);
        for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(order[i], i);
    }
    EXPECT_EQ(orders.size(), 3u);
}

TEST(BatchPlanTest, a_step_depends_on_its_index_alone) {
    const Dataset dataset = samples(std::vector<int64_t>(7, 4));
    const BatchOptions options{
        .row_count = 2, .step_count = 9, .order = SampleOrder::shuffled, .seed = 3};
    BatchPlan forward(dataset, options);
    ASSERT_EQ(forward.step_count(), 9);
    std::vector<std::vector<int32_t>> steps;
    for (int64_t i = 0; i < 9; ++i) steps.push_back(first_tokens(forward.step(i)));
    BatchPlan resumed(dataset, options);
    for (const int64_t i : {8, 0, 5, 5, 3}) EXPECT_EQ(first_tokens(resumed.step(i)), steps[i]) << i;
    BatchPlan other(dataset,
                    {.row_count = 2, .step_count = 9, .order = SampleOrder::shuffled, .seed = 4});
    EXPECT_NE(first_tokens(other.step(0)), steps[0]);
}

TEST(BatchPlanTest, fractions_of_epochs_are_rounded_up_to_steps) {
    const Dataset dataset = samples(std::vector<int64_t>(10, 4));
    EXPECT_EQ(BatchPlan(dataset, {.epoch_count = 0.25}).step_count(), 3);
    EXPECT_EQ(BatchPlan(dataset, {.epoch_count = 2.5}).step_count(), 25);
    EXPECT_EQ(BatchPlan(dataset, {.epoch_count = 5, .step_count = 4}).step_count(), 4);
}

// A Dataset refuses samples with nothing to train, so masked micro-batches are made by hand.
TEST(BatchPlanTest, acc_5_masked_micro_batches_are_counted) {
    const TokenBatch masked{.row_count = 1, .column_count = 8, .token_count = 5};
    TokenBatch trained = masked;
    trained.trained_token_count = 3;
    const StepBatch step = make_step({trained, masked, trained, trained});
    EXPECT_EQ(step.masked_micro_batch_count, 1);
    EXPECT_EQ(step.trained_token_count, 9);
    EXPECT_EQ(step.token_count, 20);
    EXPECT_FALSE(step.is_masked());
    EXPECT_EQ(make_step({masked, masked}).masked_micro_batch_count, 2);
    EXPECT_TRUE(make_step({masked, masked}).is_masked());
}

TEST(BatchPlanTest, the_largest_shape_is_that_of_the_steps_taken) {
    const Dataset dataset = samples({4, 4, 30, 4, 9, 4});
    for (const SampleOrder order :
         {SampleOrder::as_given, SampleOrder::shuffled, SampleOrder::by_length}) {
        for (const int64_t step_count : {1, 2, 3, 7}) {
            BatchPlan plan(dataset, {.row_count = 2,
                                     .micro_batches_per_step = 2,
                                     .step_count = step_count,
                                     .order = order,
                                     .seed = 8});
            MicroBatchShape most;
            for (int64_t i = 0; i < step_count; ++i) {
                for (const TokenBatch& batch : plan.step(i).micro_batches) {
                    most.row_count = std::max(most.row_count, batch.row_count);
                    most.column_count = std::max(most.column_count, batch.column_count);
                }
            }
            EXPECT_EQ(plan.max_micro_batch_shape(), most)
                << static_cast<int>(order) << ' ' << step_count;
        }
    }
}

}  // namespace
}  // namespace headrace::engine
