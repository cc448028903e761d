// Goal: a rehearsal turns real steps of a part placed as the whole is, tells what was predicted
// beside what was measured, scales it to the whole, and leaves nothing.
// Method: tiny models of six blocks, on the host with weights and data, and under an emulated card
// with neither.
#include "engine/rehearse/rehearse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/plan/part_of_model.h"
#include "tests/engine/train/train_run.h"

namespace headrace::engine::tests {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Each;
using testing::Gt;
using testing::HasSubstr;

class Rehearse : public TrainRun {
  protected:
    offload::Result<Rehearsal> rehearse_part(const RehearsalInputs& inputs) {
        return rehearse(inputs,
                        {.note = [](const std::string&) {},
                         .warn = [](const std::string&) {},
                         .stop_signal = [&] { return signal_; },
                         .stuck = [](const std::string& line) { CHECK_TEXT(false, line); }});
    }

    int signal_ = 0;
};

TEST_F(Rehearse, RealWeightsAndDataOfSomeBlocks) {
    const FlatModel model = tiny_model(tiny_config(true, 6), offload::Dtype::bf16);
    const std::string model_dir = write_tiny_checkpoint(model, folder_);
    const Dataset data = Dataset::read({.path = config_.train_data,
                                        .vocabulary_size = tiny_vocabulary,
                                        .max_length = config_.max_length})
                             .value();
    config_.gradient_accumulation_steps = 2;
    const auto rehearsal = rehearse_part({.config = config_,
                                          .model = model.config,
                                          .model_dir = model_dir,
                                          .train_data = &data,
                                          .block_count = 2,
                                          .step_count = 3});
    ASSERT_TRUE(rehearsal.ok()) << rehearsal.error().text();
    EXPECT_EQ(rehearsal->steps_s.size(), 3u);
    EXPECT_THAT(rehearsal->steps_s, Each(Gt(0)));
    EXPECT_GT(rehearsal->whole_step_s(), rehearsal->step_s);
    EXPECT_GT(rehearsal->whole.written_bytes, rehearsal->part.written_bytes);
    EXPECT_GT(rehearsal->whole.updated_parameter_count, rehearsal->part.updated_parameter_count);
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive")));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("out")));
    EXPECT_FALSE(std::filesystem::exists(folder_.path("out.rehearsal")));

    std::string text;
    for (const std::string& line : describe(*rehearsal)) text += line + "\n";
    EXPECT_THAT(text, AllOf(HasSubstr("2 of 6 blocks"), HasSubstr("cpu busy"),
                            HasSubstr("the whole model:")));
    EXPECT_THAT(text, testing::Not(HasSubstr("EMULATED")));
    const json object = json::parse(json_of(*rehearsal));
    EXPECT_EQ(object["emulated"], nullptr);
    EXPECT_GT(object["lanes"]["nvme_write"]["busy_s"], 0);

    signal_ = SIGINT;
    const auto stopped = rehearse_part({.config = config_,
                                        .model = model.config,
                                        .model_dir = model_dir,
                                        .train_data = &data,
                                        .block_count = 2});
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, offload::ErrorCode::stopped);
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive")));
}

// One op at a time takes as long as all lanes together; overlapped, hardly longer than the longest.
TEST_F(Rehearse, AnEmulatedCardNeedsNeitherWeightsNorData) {
    config_.emulate = folder_.write(
        "slow.yaml",
        "name: slow-card\n"
        "gpu: {memory: 22GiB, tflops: 0.0002, memory_gb_per_s: 900, launch_us: 5, cores: 0}\n"
        "link: {h2d_gb_per_s: 0.002, d2h_gb_per_s: 0.002, latency_us: 10, both_ways: 2, cores: 0}\n"
        "ram: {memory: 56GiB, gb_per_s: 70}\n"
        "cpu: {cores: 16, update_cores: 8, update_gparam_per_s: 2.2}\n");
    config_.max_length = 16;
    config_.offload.gpu_budget_bytes.reset();
    config_.offload.parameters = TierShares::all_on(offload::Tier::ram);
    const LlamaConfig model = tiny_config(false, 6);
    const auto overlapped =
        rehearse_part({.config = config_, .model = model, .block_count = 2, .step_count = 2});
    ASSERT_TRUE(overlapped.ok()) << overlapped.error().text();
    EXPECT_EQ(overlapped->emulated, "slow-card");
    EXPECT_EQ(overlapped->token_count, 64);
    EXPECT_NEAR(overlapped->step_s, overlapped->part.forecast.step_s,
                0.3 * overlapped->part.forecast.step_s);
    EXPECT_THAT(describe(*overlapped).front(), HasSubstr("EMULATED slow-card"));
    Rehearsal unspeakable = *overlapped;
    unspeakable.emulated = "\xFF";
    EXPECT_EQ(json::parse(json_of(unspeakable))["emulated"], "\uFFFD");

    config_.offload.advanced.overlap = false;
    const auto alone =
        rehearse_part({.config = config_, .model = model, .block_count = 2, .step_count = 2});
    ASSERT_TRUE(alone.ok()) << alone.error().text();
    double sum_s = 0;
    for (const double lane_s : alone->part.forecast.alone_s) sum_s += lane_s;
    EXPECT_GE(alone->step_s, 0.99 * sum_s);
    EXPECT_GT(alone->step_s, 1.1 * overlapped->step_s);
}

// The part's blocks lie where blocks of the whole lie, evenly taken.
TEST_F(Rehearse, ThePartIsPlacedAsTheWhole) {
    const LlamaConfig model = tiny_config(true, 6);
    Placement whole;
    whole.part_bytes = 16 << 10;
    whole.workload.layout = layout_of(model, offload::Dtype::bf16, whole.part_bytes).value();
    whole.workload.act_bytes = whole.workload.kept_bytes = offload::page_bytes;
    whole.plan = offload::uniform_plan(whole.workload, {}, offload::Tier::ram);
    whole.plan.kept_homes.assign(8, std::nullopt);
    whole.plan.kept_homes[5] = offload::Tier::ram;
    const offload::Layout& layout = whole.workload.layout;
    for (uint32_t part = 0; part < layout.parts.size(); ++part) {
        if (layout.parts[part].layer == 2) whole.plan.homes[part].hi = offload::Tier::ram;
    }
    LlamaConfig part_model = model;
    part_model.block_count = 2;
    const Placement part = part_of(whole, part_model);  // blocks 2 and 5 of 1 to 6
    const offload::Layout& cut = part.workload.layout;
    ASSERT_EQ(cut.layers.size(), 4u);
    for (uint32_t i = 0; i < cut.parts.size(); ++i) {
        EXPECT_EQ(part.plan.homes[i].hi,
                  cut.parts[i].layer == 1 ? offload::Tier::ram : offload::Tier::nvme);
    }
    EXPECT_FALSE(part.plan.kept_homes[1].has_value());
    EXPECT_EQ(part.plan.kept_homes[2], offload::Tier::ram);
    EXPECT_LT(part.needs.nvme_bytes, offload::Sizes(whole.workload).of(whole.plan).nvme_bytes);
}

}  // namespace
}  // namespace headrace::engine::tests
