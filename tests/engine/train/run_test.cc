// Goal: train() as a run file asks for it: steps, evaluations, metrics and the export; steps that
// are skipped are told, and too many of them end the run.
// Method: a tiny model folder and a few samples of token ids; what is reported is collected; bits
// are compared between placements through the hashes that a run writes into metrics.jsonl.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "engine/train/train.h"
#include "offload/units.h"
#include "tests/engine/train/train_run.h"

namespace headrace::engine::tests {
namespace {

using nlohmann::json;
using offload::ErrorCode;
using offload::Tier;
using ::testing::Contains;
using ::testing::HasSubstr;

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
    for (const StepRecord& step : told.steps) EXPECT_TRUE(step.is_warm_up) << step.step;
    const json on_nvme = last_metrics();
    EXPECT_GT(on_nvme["nvme_bytes"], 0);
    const Checkpoint trained = Checkpoint::open(folder_.path("out/model")).value();
    EXPECT_TRUE(trained.check_against(layers_of(model.config)).ok());
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive")))
        << "a finished run needs no store";

    config_.offload.parameters = TierShares::all_on(Tier::gpu);
    config_.offload.optimizer = TierShares::all_on(Tier::ram);
    config_.offload.nvme_paths.clear();
    const Told in_memory = run(model);
    ASSERT_TRUE(in_memory.status.ok());
    EXPECT_TRUE(in_memory.steps[0].is_warm_up) << "it updates nothing";
    EXPECT_FALSE(in_memory.steps[1].is_warm_up);
    const json resident = last_metrics();
    EXPECT_EQ(resident["nvme_bytes"], 0);
    for (const char* key : {"weights_sha256", "states_sha256", "history_sha256"}) {
        EXPECT_EQ(resident[key], on_nvme[key]) << key;
    }
    // Nor does what the planner chooses change a bit: with room, in memory; with less, on the
    // drive.
    config_.offload.nvme_paths = {folder_.path("drive")};
    config_.offload.parameters = config_.offload.optimizer = std::nullopt;
    for (const uint64_t ram_bytes : {64 * offload::mib, 640 * offload::kib}) {
        config_.offload.ram_budget_bytes = ram_bytes;
        config_.offload.gpu_budget_bytes = 640 * offload::kib + ram_bytes / 2;
        const Told chosen = run(model);
        ASSERT_TRUE(chosen.status.ok()) << chosen.status.error().text();
        const auto predicted = std::ranges::find_if(
            chosen.notes, [](const std::string& note) { return note.starts_with("predicted"); });
        EXPECT_LT(predicted - chosen.notes.begin(), 20) << "the first lines";
        EXPECT_THAT(chosen.notes, Contains(HasSubstr("rates: nominal")));
        EXPECT_THAT(chosen.notes, Contains(HasSubstr("predicted: a step")));
        EXPECT_THAT(chosen.notes, Contains(HasSubstr("predicted ")));
        EXPECT_GT(last_metrics()["predicted_step_ms"], 0.0);
        EXPECT_GT(last_metrics()["measured_step_ms"], 0.0);
        const bool is_in_memory = ram_bytes > offload::mib;
        EXPECT_THAT(chosen.notes, Contains(HasSubstr(is_in_memory ? "commit: at the end"
                                                                  : "commit: every step")));
        for (const char* key : {"weights_sha256", "states_sha256", "history_sha256"}) {
            EXPECT_EQ(last_metrics()[key], resident[key]) << key << ", ram " << ram_bytes;
        }
    }
    config_.offload.ram_budget_bytes = config_.offload.gpu_budget_bytes = 64 * offload::mib;
    config_.max_grad_norm = 0;
    ASSERT_TRUE(run(model).status.ok());
    EXPECT_NE(last_metrics()["weights_sha256"], resident["weights_sha256"]);
}

// A run in memory uses its drive for saves alone: no step is told to have moved their bytes, nor
// those that a resume reads.
TEST_F(TrainRun, WhatASaveMovesIsNoSteps) {
    const FlatModel model = tiny_model(tiny_config(true), offload::Dtype::bf16);
    config_.offload.parameters = TierShares::all_on(Tier::gpu);
    config_.offload.optimizer = TierShares::all_on(Tier::ram);
    config_.offload.commit = CommitMode::at_saves;
    config_.save_steps = 1;
    stop_after_ = 1;
    EXPECT_FALSE(run(model).status.ok());
    stop_after_ = std::numeric_limits<int64_t>::max();
    config_.resume_from_checkpoint = true;
    const Told told = run(model);
    ASSERT_TRUE(told.status.ok()) << told.status.error().text();
    EXPECT_THAT(told.notes, Contains("saved after step 2 of 3"));
    ASSERT_EQ(told.steps.size(), 2u);
    for (const StepRecord& step : told.steps) {
        EXPECT_EQ(step.nvme_read_bytes, 0u) << step.step;
        EXPECT_EQ(step.nvme_write_bytes, 0u) << step.step;
    }
    EXPECT_GT(last_metrics()["nvme0_read_bytes"], 0);
    EXPECT_GT(last_metrics()["nvme0_write_bytes"], 0);
}

// gradient_checkpointing: what blocks keep is told, and changes no bit; a run that stops may go on
// with another choice. All of it or nothing is refused where it does not fit.
TEST_F(TrainRun, WhatIsKeptIsToldAndChangesNoBit) {
    const FlatModel model = tiny_model(tiny_config(true), offload::Dtype::bf16);
    std::set<std::string> weights;
    const auto told_with = [&](std::optional<bool> recomputes, const std::string& line) {
        config_.gradient_checkpointing = recomputes;
        const Told told = run(model);
        ASSERT_TRUE(told.status.ok()) << told.status.error().text();
        EXPECT_THAT(told.notes, Contains(HasSubstr(line)));
        weights.insert(last_metrics()["weights_sha256"].get<std::string>());
    };
    told_with(true, "kept for backward: nothing, 2 blocks are recomputed");
    told_with(std::nullopt, "2 of 2 blocks; nothing is recomputed");
    told_with(false, "2 of 2 blocks; nothing is recomputed");
    config_.gradient_checkpointing = true;
    stop_after_ = 1;
    EXPECT_FALSE(run(model).status.ok());
    stop_after_ = std::numeric_limits<int64_t>::max();
    config_.resume_from_checkpoint = true;
    told_with(false, "2 of 2 blocks; nothing is recomputed");
    EXPECT_EQ(weights.size(), 1u);
    config_.resume_from_checkpoint = false;
    config_.offload.gpu_budget_bytes = 600 * offload::kib;
    const Told refused = run(model);
    ASSERT_FALSE(refused.status.ok());
    EXPECT_EQ(refused.status.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(refused.status.error().text(), HasSubstr("gradient_checkpointing=auto"));
}

// CLIP-2, CLIP-4 in fp16: a scale that is too high falls, step by skipped step, until gradients are
// finite; the rate waits for it; then the run trains, and its export is in fp16.
TEST_F(TrainRun, clip_2_clip_4_AnFp16RunFindsItsLossScale) {
    const FlatModel model = tiny_model(tiny_config(true), offload::Dtype::fp16);
    config_.dtype = config_.offload.gradients = offload::Dtype::fp16;
    config_.loss_scale = {.initial_scale_power = 26, .window = 4, .hysteresis = 1};
    config_.gradient_accumulation_steps = 1;
    config_.max_steps = 30;
    const Told told = run(model);
    ASSERT_TRUE(told.status.ok()) << told.status.error().text();
    ASSERT_EQ(told.steps.size(), 30u);
    double scale = 0x1p26;
    int64_t applied = 0;
    for (const StepRecord& step : told.steps) {
        EXPECT_LE(*step.loss_scale, 2 * scale);
        EXPECT_GE(*step.loss_scale, scale / 2);
        scale = *step.loss_scale;
        if (step.is_skipped) continue;
        const auto update = static_cast<double>(applied++);
        EXPECT_DOUBLE_EQ(step.learning_rate, config_.learning_rate * (30 - update) / 30);
    }
    EXPECT_TRUE(told.steps[0].is_skipped);
    EXPECT_GT(applied, 10);
    EXPECT_LT(applied, 30);
    EXPECT_LT(scale, 0x1p26);
    EXPECT_THAT(told.warnings, Contains(HasSubstr("the loss scale falls from 67,108,864 to")));
    EXPECT_LT(told.steps.back().loss, 0.9 * told.steps.front().loss);
    const Checkpoint trained = Checkpoint::open(folder_.path("out/model")).value();
    EXPECT_EQ(trained.find("model.norm.weight")->dtype, offload::Dtype::fp16);

    config_.loss_scale = {.initial_scale_power = 26, .hysteresis = 1, .min_scale = 0x1p25};
    const Told diverged = run(model);
    ASSERT_FALSE(diverged.status.ok());
    EXPECT_EQ(diverged.status.error().code, ErrorCode::diverged);
    EXPECT_THAT(diverged.status.error().text(), HasSubstr("loss scale at its minimum"));
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
    EXPECT_FALSE(std::filesystem::is_empty(folder_.path("drive"))) << "what it had can be resumed";
}

// The trace holds the plan beside what was measured, with the same lanes and the same ops in each
// period; where the median step went is told, and its lanes add up to it.
TEST_F(TrainRun, WhereTheStepsWentIsToldAndTraced) {
    config_.max_steps = 12;
    config_.offload.advanced.trace = folder_.path("trace.json");
    const Told told = run(tiny_model(tiny_config(true), offload::Dtype::bf16));
    ASSERT_TRUE(told.status.ok()) << told.status.error().text();
    EXPECT_THAT(told.notes, Contains(HasSubstr("the median of")));
    EXPECT_THAT(told.notes, Contains(testing::ContainsRegex("  gpu .*% busy")));

    const json trace = json::parse(folder_.read("trace.json"));
    std::map<int, std::set<std::string>> tracks;
    std::map<std::pair<int, int64_t>, std::set<std::string>> ops;  // of process and period
    for (const json& event : trace["traceEvents"]) {
        const int process = event["pid"].get<int>();
        if (event["name"] == "thread_name") {
            tracks[process].insert(event["args"]["name"].get<std::string>());
        } else if (event["ph"] == "X") {
            const auto period = event["args"]["period"].get<int64_t>();
            ops[{process, period}].insert(event["name"].get<std::string>());
        }
    }
    EXPECT_EQ(tracks.size(), 2u);
    EXPECT_EQ(tracks[1], tracks[2]);
    std::set<std::string> planned;
    std::set<std::string> measured;
    for (const auto& [of, names] : ops) {
        std::set<std::string>& most = of.first == 1 ? planned : measured;
        if (names.size() > most.size()) most = names;
    }
    EXPECT_GT(planned.size(), 20u);
    EXPECT_EQ(planned, measured);

    const json metrics = last_metrics();
    const double step_ms = metrics["median_step_ms"];
    EXPECT_GT(step_ms, 0);
    double gpu_ms = metrics["step_busy_gpu_ms"];
    EXPECT_GT(gpu_ms, 0);
    for (const auto& [name, value] : metrics.items()) {
        if (name.starts_with("step_waiting_gpu_")) gpu_ms += value.get<double>();
    }
    // What lies behind the last op of a run is nobody's wait.
    EXPECT_LE(gpu_ms, (1 + 1e-6) * step_ms);
    EXPECT_GT(gpu_ms, 0.5 * step_ms);
}

}  // namespace
}  // namespace headrace::engine::tests
