// Goal: train() as a run file asks for it: steps, evaluations, metrics and the export; steps that
// are skipped are told, and too many of them end the run.
// Method: a tiny model folder and a few samples of token ids; what is reported is collected; bits
// are compared between placements through the hashes that a run writes into metrics.jsonl.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/train/train.h"
#include "offload/units.h"
#include "tests/engine/train/tiny_run.h"

namespace headrace::engine::tests {
namespace {

using nlohmann::json;
using offload::ErrorCode;
using offload::Tier;
using ::testing::Contains;
using ::testing::HasSubstr;

struct Told {
    std::vector<std::string> warnings;
    std::vector<StepRecord> steps;
    std::vector<EvalRecord> evaluations;
    offload::Status status;
};

class TrainRun : public testing::Test {
  protected:
    void SetUp() override {
        config_.train_data = data("train.jsonl", 10, 1);
        config_.output_dir = folder_.path("out");
        std::filesystem::create_directory(config_.output_dir);
        config_.max_length = 64;
        config_.gradient_accumulation_steps = 4;
        config_.num_train_epochs = 1;
        config_.learning_rate = 1e-2;
        config_.warmup_ratio = 0;
        config_.max_grad_norm = 0.1;
        config_.offload.gpu_budget_bytes = 64 * offload::mib;
        config_.offload.ram_budget_bytes = 64 * offload::mib;
        config_.offload.nvme_paths = {folder_.path("drive")};
        std::filesystem::create_directory(folder_.path("drive"));
        config_.offload.advanced.compute_threads = 1;
    }

    // Samples of 12 to 20 tokens; the last of each is `last_token`, where that is given.
    std::string data(const std::string& name, int sample_count, int seed, int last_token = 5) {
        std::string text;
        for (int sample = 0; sample < sample_count; ++sample) {
            std::string ids;
            for (int token = 0; token < 12 + sample % 3 * 4; ++token) {
                ids += fmt::format("{}, ", (seed * 31 + sample * 7 + token * token) % 250);
            }
            text += fmt::format("{{\"input_ids\": [{}{}, 3]}}\n", ids, last_token);
        }
        return folder_.write(name, text);
    }

    Told run(const FlatModel& model) {
        Told told;
        const std::string model_dir = folder_.path("model");
        std::filesystem::remove_all(model_dir);
        write_tiny_checkpoint(model, folder_);
        const auto read = [&](const std::string& path) {
            return Dataset::read({.path = path,
                                  .vocabulary_size = tiny_vocabulary,
                                  .max_length = config_.max_length})
                .value();
        };
        const Dataset train_data = read(config_.train_data);
        const Dataset eval_data = read(data("eval.jsonl", 3, 2));
        told.status = train(
            {.config = config_,
             .model_dir = model_dir,
             .model = model.config,
             .train_data = train_data,
             .eval_data = &eval_data},
            {.note = [](const std::string&) {},
             .warn = [&](const std::string& line) { told.warnings.push_back(line); },
             .step = [&](const StepRecord& record, int64_t) { told.steps.push_back(record); },
             .evaluation = [&](const EvalRecord& record) { told.evaluations.push_back(record); },
             .finished = [](const std::vector<Metric>&) {},
             .begin = [] { return offload::Status{}; },
             .stop_signal = [] { return 0; }});
        return told;
    }

    json last_metrics() const {
        std::istringstream lines(folder_.read("out/metrics.jsonl"));
        std::string line;
        std::string last;
        while (std::getline(lines, line)) last = line;
        return json::parse(last);
    }

    TestFolder folder_;
    RunConfig config_;
};

// ACC-4: ten micro-batches in windows of four are three updates, the last over two. The bits are
// those of a resident run, and the export holds them.
TEST_F(TrainRun, acc_4_TenMicroBatchesAreThreeUpdates) {
    const FlatModel model = tiny_model(tiny_config(true), offload::Dtype::bf16);
    const Told told = run(model);
    ASSERT_TRUE(told.status.ok()) << told.status.error().text();
    ASSERT_EQ(told.steps.size(), 3u);
    EXPECT_EQ(told.steps[0].micro_batch_count, 4);
    EXPECT_EQ(told.steps[2].micro_batch_count, 2);
    EXPECT_EQ(told.evaluations.size(), 2u);
    const json on_nvme = last_metrics();
    EXPECT_GT(on_nvme["nvme_bytes"], 0);
    const Checkpoint trained = Checkpoint::open(folder_.path("out/model")).value();
    EXPECT_TRUE(trained.check_against(layers_of(model.config)).ok());
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive"))) << "the store is scratch";

    config_.offload.parameters = TierShares::all_on(Tier::gpu);
    config_.offload.optimizer = TierShares::all_on(Tier::ram);
    config_.offload.nvme_paths.clear();
    ASSERT_TRUE(run(model).status.ok());
    const json resident = last_metrics();
    EXPECT_EQ(resident["nvme_bytes"], 0);
    for (const char* key : {"weights_sha256", "states_sha256", "history_sha256"}) {
        EXPECT_EQ(resident[key], on_nvme[key]) << key;
    }
    config_.max_grad_norm = 0;
    ASSERT_TRUE(run(model).status.ok());
    EXPECT_NE(last_metrics()["weights_sha256"], resident["weights_sha256"]);
}

// CLIP-2: 20 steps in a row may be skipped, each told by step and tensor; the next ends the run.
TEST_F(TrainRun, clip_2_TwentyOneSkipsAreADivergence) {
    FlatModel model = tiny_model(tiny_config(false), offload::Dtype::bf16);
    const uint16_t infinity = 0x7F80;
    const int token = tiny_vocabulary - 1;
    std::memcpy(model.weights.front().data() + static_cast<size_t>(token) * 64 * sizeof(infinity),
                &infinity, sizeof(infinity));
    config_.train_data = data("train.jsonl", 10, 1, token);
    config_.gradient_accumulation_steps = 1;
    config_.max_steps = 20;
    const Told tolerated = run(model);
    EXPECT_TRUE(tolerated.status.ok()) << tolerated.status.error().text();
    EXPECT_THAT(tolerated.warnings, Contains(HasSubstr("step 20 skipped")));
    EXPECT_THAT(tolerated.warnings, Contains(HasSubstr("model.embed_tokens.weight")));
    EXPECT_EQ(last_metrics()["skipped_step_count"], 20);
    const Checkpoint trained = Checkpoint::open(folder_.path("out/model")).value();
    std::vector<std::byte> norm(64 * sizeof(uint16_t));
    ASSERT_TRUE(trained
                    .read_elements("model.norm.weight", 0,
                                   {.dtype = offload::Dtype::bf16, .weights = norm, .lo = {}})
                    .ok());
    const std::span<const std::byte> before = model.weights.back();
    EXPECT_TRUE(std::ranges::equal(norm, before.first(norm.size())));

    config_.max_steps = 30;
    const Told diverged = run(model);
    ASSERT_FALSE(diverged.status.ok());
    EXPECT_EQ(diverged.status.error().code, ErrorCode::diverged);
    EXPECT_THAT(diverged.status.error().text(), HasSubstr("21 steps in a row"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive")));
}

}  // namespace
}  // namespace headrace::engine::tests
