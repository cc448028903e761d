// Goal: a run under a card that is not there takes that card's time, touches no byte of its memory,
// does everything else in earnest, and cannot be mistaken for training.
// Method: tiny runs under a machine file whose card is slow enough that its lanes are all there is;
// the gpu slab is no memory, so that whoever touched it would end the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models/effort.h"
#include "engine/resume/identity.h"
#include "engine/train/resident.h"
#include "tests/engine/train/train_run.h"

namespace headrace::engine::tests {
namespace {

using nlohmann::json;
using offload::Tier;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

constexpr double slow_flops = 2e8;

class Emulate : public TrainRun {
  protected:
    void SetUp() override {
        TrainRun::SetUp();
        std::string text;
        for (int sample = 0; sample < 10; ++sample) {
            text += R"({"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3]})"
                    "\n";
        }
        config_.train_data = folder_.write("equal.jsonl", text);
        config_.gradient_accumulation_steps = 2;
        config_.max_steps = 4;
        config_.offload.gpu_budget_bytes.reset();
        config_.emulate = folder_.write("slow.yaml", machine_text(slow_flops * 1e-12, 0.5));
    }

    static std::string machine_text(double tflops, double link_gb_per_s) {
        return fmt::format(
            "name: slow-card\n"
            "gpu: {{memory: 22GiB, tflops: {}, memory_gb_per_s: 900, launch_us: 5, cores: 0}}\n"
            "link: {{h2d_gb_per_s: {}, d2h_gb_per_s: {}, latency_us: 10, both_ways: 2, cores: 0}}\n"
            "ram: {{memory: 56GiB, gb_per_s: 70}}\n"
            "cpu: {{cores: 16, update_cores: 8, update_gparam_per_s: 2.2}}\n",
            tflops, link_gb_per_s, link_gb_per_s);
    }
};

// The card computes all the time, and exactly as long as its rate says.
TEST_F(Emulate, AStepTakesTheTimeOfTheCard) {
    const FlatModel model = tiny_model(tiny_config(false), offload::Dtype::bf16);
    const offload::Effort effort = effort_of(model.config, 1, 16);
    StepRecord step;
    json metrics;
    // Other tests may hold the cores: the quickest of three counts.
    for (int round = 0; round < 3; ++round) {
        const Told told = run(model);
        ASSERT_TRUE(told.status.ok()) << told.status.error().text();
        ASSERT_EQ(told.steps.size(), 4u);
        ASSERT_EQ(told.steps[2].token_count, 32);
        const json of_round = last_metrics();
        if (round > 0 && of_round["median_step_ms"] > metrics["median_step_ms"]) continue;
        metrics = of_round;
        step = told.steps[2];
    }
    double flop = 0;  // of a micro-batch; every block keeps what its backward needs
    for (const offload::LayerEffort& layer : effort.layers) {
        const bool is_head = layer.forward_flop == 0;
        const double share = is_head ? static_cast<double>(step.trained_token_count) / 32 : 1;
        flop += share * (layer.forward_flop + layer.backward_flop);
    }
    const double card_ms = 1e3 * 2 * flop / slow_flops;
    EXPECT_GT(card_ms, 50);
    EXPECT_NEAR(metrics["step_busy_gpu_ms"].get<double>(), card_ms, 0.05 * card_ms);
    EXPECT_GE(metrics["median_step_ms"].get<double>(), 0.999 * card_ms);
    EXPECT_LT(metrics["median_step_ms"].get<double>(), 1.3 * card_ms);
    EXPECT_GT(metrics["nvme_bytes"], 0);
    EXPECT_GT(step.nvme_write_bytes, 0u) << "drives are real";
}

TEST_F(Emulate, EveryLineAndEveryFileSaysSo) {
    config_.emulate = folder_.write("fast.yaml", machine_text(100, 25));
    const Told told = run(tiny_model(tiny_config(true), offload::Dtype::bf16));
    ASSERT_TRUE(told.status.ok()) << told.status.error().text();
    EXPECT_THAT(told.warnings, Contains(AllOf(HasSubstr("EMULATED slow-card"),
                                              HasSubstr("No model will be written"))));
    for (const StepRecord& step : told.steps) EXPECT_EQ(step.emulated, "slow-card");
    for (const EvalRecord& eval : told.evaluations) EXPECT_EQ(eval.emulated, "slow-card");
    std::istringstream lines(folder_.read("out/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
        EXPECT_EQ(json::parse(line).value("emulated", ""), "slow-card") << line;
    }
    EXPECT_FALSE(last_metrics().contains("weights_sha256"));
    EXPECT_FALSE(std::filesystem::exists(folder_.path("out/model")));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive"))) << "nothing to go on with";
    EXPECT_DOUBLE_EQ(told.steps[0].loss, std::log(tiny_vocabulary));
    EXPECT_GT(told.steps[0].grad_norm, config_.max_grad_norm) << "clipping triggers";
    EXPECT_TRUE(std::isfinite(told.steps.back().grad_norm));
}

// Weights, states, activations and gradients on the card or off it, in each dtype: nothing of the
// 22 GiB is ever memory.
TEST_F(Emulate, TheCardsMemoryIsNeverTouched) {
    config_.emulate = folder_.write("fast.yaml", machine_text(100, 25));
    config_.offload.commit = CommitMode::every_step;
    const uint64_t before_bytes = read_resident_memory().peak_bytes;
    for (const offload::Dtype dtype :
         {offload::Dtype::bf16, offload::Dtype::fp16, offload::Dtype::fp32}) {
        config_.dtype = config_.offload.gradients = dtype;
        for (const Tier weights : offload::all_tiers) {
            for (const Tier stash : offload::all_tiers) {
                config_.offload.parameters = TierShares::all_on(weights);
                config_.offload.activations = TierShares::all_on(stash);
                config_.offload.advanced.stash_tier = TierShares::all_on(stash);
                config_.gradient_checkpointing = stash == Tier::gpu;
                const Told told = run(tiny_model(tiny_config(true), dtype));
                ASSERT_TRUE(told.status.ok()) << told.status.error().text();
                EXPECT_FALSE(told.steps.back().is_skipped);
            }
        }
    }
    EXPECT_LT(read_resident_memory().peak_bytes, before_bytes + 256 * offload::mib);
}

// An emulated run cannot go on, and a real one cannot go on where an emulated one was killed.
TEST_F(Emulate, NothingIsResumed) {
    config_.emulate = folder_.write("fast.yaml", machine_text(100, 25));
    const FlatModel model = tiny_model(tiny_config(true), offload::Dtype::bf16);
    stop_after_ = 2;
    EXPECT_FALSE(run(model).status.ok());
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive")));

    const auto loaded =
        load_config("", {"model=m", "train_data=d", "nvme_paths=[/tmp]",
                         "emulate=" + config_.emulate, "resume_from_checkpoint=true"});
    ASSERT_FALSE(loaded.ok());
    EXPECT_THAT(loaded.error().text(),
                AllOf(HasSubstr("emulate"), HasSubstr("resume_from_checkpoint")));

    Identity real;
    real.numerics = {{"seed", "1"}};
    Identity emulated = real;
    emulated.numerics.push_back({"emulate", config_.emulate});
    const offload::Status same = check_same_run(emulated, real);
    ASSERT_FALSE(same.ok());
    EXPECT_THAT(same.error().text(), HasSubstr("emulate"));
}

// Where a card's file lies, and what it is called, may be anything: a commit has room for it, and
// no line of metrics.jsonl is lost.
TEST_F(Emulate, ThePathOfACardMayBeLongAndNoText) {
    const FlatModel model = tiny_model(tiny_config(true), offload::Dtype::bf16);
    config_.offload.commit = CommitMode::every_step;
    std::string text = machine_text(100, 25);
    text = text.substr(text.find('\n') + 1);  // without a name: it is called after its file
    for (const std::string& name :
         {std::string(200, 'x'), std::string(200, '\xff'), std::string("a\"b\\\tc")}) {
        std::string folders;
        for (int i = 0; i < 4; ++i) {
            folders += name + "/";
            std::filesystem::create_directory(folder_.path(folders));
        }
        config_.emulate = folder_.write(folders + name + ".yaml", text);
        const Told told = run(model);
        ASSERT_TRUE(told.status.ok()) << told.status.error().text();
        EXPECT_EQ(told.steps.size(), 4u);
        std::istringstream lines(folder_.read("out/metrics.jsonl"));
        int line_count = 0;
        for (std::string line; std::getline(lines, line); ++line_count) {
            EXPECT_FALSE(json::parse(line).value("emulated", "").empty()) << line;
        }
        EXPECT_GT(line_count, 4);
    }
}

TEST_F(Emulate, AMissingMachineIsRefusedByName) {
    config_.emulate = folder_.path("rtx9999.yaml");
    const Told told = run(tiny_model(tiny_config(true), offload::Dtype::bf16));
    ASSERT_FALSE(told.status.ok());
    EXPECT_THAT(told.status.error().text(), AllOf(HasSubstr("rtx9999"), HasSubstr("slow.yaml")));
}

}  // namespace
}  // namespace headrace::engine::tests
