// Goal: what a placement chose, fixed as settings, gives the same placement again and touches
// nothing that can change a bit; tune measures different placements, its winner must win in every
// round and by enough, and it leaves nothing behind.
// Method: shapes of real models placed on machines large and small, by arithmetic alone; a tiny
// model rehearsed for real; made-up seconds for the verdict.
#include "engine/rehearse/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/config/keys.h"
#include "engine/config/load_config.h"
#include "tests/engine/train/train_run.h"

namespace headrace::engine::tests {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsSupersetOf;

LlamaConfig shape(int64_t block_count) {
    LlamaConfig model = tiny_config(false, block_count);
    model.hidden_size = 512;
    model.intermediate_size = 1408;
    model.vocabulary_size = 8000;
    model.head_count = 8;
    model.kv_head_count = 8;
    model.head_dim = 64;
    return model;
}

offload::Machine a_machine() {
    return {.name = "a machine",
            .gpu_flops = 5e12,
            .gpu_memory_bytes_per_s = 500e9,
            .link = {.h2d_bytes_per_s = 20e9, .d2h_bytes_per_s = 20e9},
            .drive = {.read_bytes_per_s = 3e9, .write_bytes_per_s = 2e9, .latency_s = 1e-4},
            .update_parameters_per_s = 1e9,
            .memory_bytes_per_s = 40e9,
            .core_count = 8,
            .update_cores = 2};
}

// Ceilings from everything in memory down to rings alone, in several numbers of micro-batches.
TEST(FixedSettings, GiveTheSamePlacementAgain) {
    size_t placed_count = 0;
    std::set<std::pair<offload::Base, bool>> seen;  // and whether anything was cached
    for (const uint64_t ram_mib : {48u, 96u, 160u, 320u, 640u, 4096u}) {
        for (const uint64_t gpu_mib : {40u, 96u, 512u}) {
            for (const int64_t micro_batch_count : {1, 6}) {
                RunConfig config;
                config.offload.gpu_budget_bytes = gpu_mib * offload::mib;
                config.offload.ram_budget_bytes = ram_mib * offload::mib;
                config.offload.nvme_paths = {"/mnt/a"};
                const Job job{.config = shape(6),
                              .micro_batch_count_max = micro_batch_count,
                              .row_count_max = 1,
                              .column_count_max = 256,
                              .workspace_bytes = 8 * offload::mib,
                              .kept_bytes = 4 * offload::mib};
                const Site site =
                    site_of(config, {.available_bytes = 8 * offload::gib}, a_machine());
                const auto placed = place(job, config, site);
                if (!placed) continue;
                ++placed_count;
                seen.insert({placed->base, placed->choice.cached_share > 0});
                const FixedSettings fixed = fixed_settings(config, *placed);
                const auto again = place(
                    job, fixed.config,
                    site_of(fixed.config, {.available_bytes = 8 * offload::gib}, a_machine()));
                ASSERT_TRUE(again.ok()) << again.error().text();
                EXPECT_EQ(again->part_bytes, placed->part_bytes);
                EXPECT_TRUE(again->plan == placed->plan)
                    << ram_mib << " " << gpu_mib << " " << micro_batch_count;
                EXPECT_EQ(again->forecast.step_s, placed->forecast.step_s);
            }
        }
    }
    EXPECT_GT(placed_count, 20u);
    EXPECT_THAT(seen, IsSupersetOf({std::pair(offload::Base::nvme, true),
                                    std::pair(offload::Base::weights_in_ram, true),
                                    std::pair(offload::Base::states_on_nvme, true),
                                    std::pair(offload::Base::card, false)}));
    EXPECT_GT(seen.size(), 3u);
}

// Through the text of a run file, and nothing of the numerics record.
TEST(FixedSettings, AreReadBackAsTheyAreAndChangeNoBit) {
    auto loaded =
        parse_config({.yaml = "model: m\ntrain_data: d\nlearning_rate: 3e-5\n",
                      .overrides = {"nvme_paths=[/mnt/a]", "gpu_budget=512MiB", "ram_budget=160MiB",
                                    "gradient_accumulation_steps=6"}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    const Job job{.config = shape(6),
                  .micro_batch_count_max = 6,
                  .column_count_max = 256,
                  .workspace_bytes = 8 * offload::mib,
                  .kept_bytes = 4 * offload::mib};
    const auto placed =
        place(job, loaded->config,
              site_of(loaded->config, {.available_bytes = 8 * offload::gib}, a_machine()));
    ASSERT_TRUE(placed.ok()) << placed.error().text();
    FixedSettings fixed = fixed_settings(loaded->config, *placed);
    EXPECT_THAT(fixed.keys, IsSupersetOf(std::vector<std::string_view>{
                                "offload.parameters", "offload.optimizer", "offload.commit",
                                "offload.advanced.ring_slots", "offload.advanced.part_bytes"}));
    EXPECT_THAT(fixed.keys, testing::Not(Contains("offload.gpu_budget"))) << "it was given";
    for (const std::string_view key : fixed.keys) {
        EXPECT_THAT(std::string(key), testing::StartsWith("offload."));
        EXPECT_THAT(std::string(key),
                    testing::Not(testing::AnyOf(HasSubstr("threads"), HasSubstr("kernels"),
                                                HasSubstr("states"), HasSubstr("gradients"))));
        loaded->origins[std::string(key)] = "headrace tune";
    }
    LoadedConfig tuned = *loaded;
    tuned.config = fixed.config;
    const std::string text = given_yaml(tuned, {"how it came about"});
    EXPECT_THAT(text, testing::StartsWith("# how it came about\n"));
    const auto again = parse_config({.yaml = text});
    ASSERT_TRUE(again.ok()) << again.error().text() << text;
    EXPECT_TRUE(again->config == fixed.config) << text;
    EXPECT_THAT(text, testing::Not(HasSubstr("weight_decay")))
        << "what is not given stays a default";

    RunConfig same = fixed.config;
    same.offload = loaded->config.offload;
    EXPECT_TRUE(same == loaded->config) << "only the section offload was changed";
    same.offload = fixed.config.offload;
    same.offload.gradients = loaded->config.offload.gradients;
    same.offload.optimizer_states = loaded->config.offload.optimizer_states;
    same.offload.advanced.kernels = loaded->config.offload.advanced.kernels;
    same.offload.advanced.compute_threads = loaded->config.offload.advanced.compute_threads;
    EXPECT_TRUE(same == fixed.config) << "nothing of the numerics record";
}

TEST(Tune, AWinnerWinsInEveryRoundAndByEnough) {
    EXPECT_EQ(winner_of({{10, 11, 10}, {9, 9.5, 9}, {9.5, 9.6, 9.7}}), 1u);
    EXPECT_EQ(winner_of({{10, 11, 10}, {9, 11.1, 9}}), 0u) << "slower in a round";
    EXPECT_EQ(winner_of({{10, 11, 10}, {9.9, 10.9, 9.9}}), 0u) << "hardly faster";
    EXPECT_EQ(winner_of({{10, 11, 10}, {9.9, 10.9, 9.9}, {9.6, 10.5, 9.7}}), 2u);
    // A slow minute hits both: only the ratios of a round count.
    EXPECT_EQ(winner_of({{10, 30, 10}, {9, 27, 9}}), 1u);
    EXPECT_EQ(winner_of({{10, 30, 10}}), 0u);
}

class TuneRun : public TrainRun {
  protected:
    void SetUp() override {
        TrainRun::SetUp();
        config_.offload.parameters.reset();
        config_.offload.optimizer.reset();
        config_.max_length = 32;
    }

    RehearsalReporter reporter() {
        return {.note = [](const std::string&) {},
                .warn = [](const std::string&) {},
                .stop_signal = [&] { return ++asked_ > patience_ ? SIGINT : 0; },
                .stuck = [](const std::string& line) { CHECK_TEXT(false, line); }};
    }

    const LlamaConfig model_ = tiny_config(true, 4);
    int asked_ = 0;
    int patience_ = 1000;
};

TEST_F(TuneRun, MeasuresDifferentPlacementsInTurns) {
    const RehearsalInputs inputs{
        .config = config_, .model = model_, .block_count = 2, .step_count = 1};
    const TuneOptions options{.candidate_count = 3, .round_count = 2};
    auto tuning = find_candidates(inputs, options);
    ASSERT_TRUE(tuning.ok()) << tuning.error().text();
    ASSERT_EQ(tuning->candidates.size(), 3u);
    EXPECT_GE(tuning->predicted_count, 3u);
    EXPECT_EQ(tuning->candidates.front().what, "as planned");
    EXPECT_FALSE(tuning->candidates[1].placement.plan == tuning->candidates[2].placement.plan &&
                 tuning->candidates[1].placement.part_bytes ==
                     tuning->candidates[2].placement.part_bytes);
    EXPECT_LE(tuning->candidates[1].predicted_s, tuning->candidates[2].predicted_s);

    std::vector<std::string> lines;
    const auto status = measure(*tuning, inputs, options, reporter(),
                                [&](const std::string& line) { lines.push_back(line); });
    ASSERT_TRUE(status.ok()) << status.error().text();
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_THAT(lines.front(), HasSubstr("as planned"));
    EXPECT_THAT(lines.back(), HasSubstr("as planned")) << "every other round backwards";
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive")));
    EXPECT_THAT(tuning->ratios_of(0), Each(1.0));

    const json told = json::parse(json_of(*tuning, "a.yaml"));
    EXPECT_EQ(told["candidates"].size(), 3u);
    EXPECT_EQ(told["run_file"], "a.yaml");
    EXPECT_EQ(told["emulated"], nullptr);
    EXPECT_EQ(json::parse(json_of(*tuning, "\xFF.yaml"))["run_file"], "\uFFFD.yaml");
    EXPECT_GT(told["candidates"][1]["measured_step_s"], 0);
    EXPECT_TRUE(told["candidates"][0]["settings"].contains("offload.advanced.layers_in_flight"));
    EXPECT_THAT(describe(*tuning).back(), testing::AnyOf(HasSubstr("kept:"), HasSubstr("won:")));
}

TEST_F(TuneRun, StopsAndLeavesNothing) {
    const RehearsalInputs inputs{
        .config = config_, .model = model_, .block_count = 2, .step_count = 1};
    const TuneOptions options{.candidate_count = 2, .round_count = 2};
    auto tuning = find_candidates(inputs, options);
    ASSERT_TRUE(tuning.ok()) << tuning.error().text();
    patience_ = 3;
    const auto status = measure(*tuning, inputs, options, reporter(), {});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, offload::ErrorCode::stopped);
    EXPECT_THAT(status.error().text(), HasSubstr("stopped by signal 2"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive")));
    EXPECT_FALSE(std::filesystem::exists(folder_.path("out.rehearsal")));
}

TEST_F(TuneRun, NothingToChooseBetweenAndNothingThatFits) {
    const TuneOptions options{};
    const RehearsalInputs open{.config = config_, .model = model_, .block_count = 2};
    auto tuning = find_candidates(open, options);
    ASSERT_TRUE(tuning.ok()) << tuning.error().text();
    const RunConfig all_fixed = tuning->candidates.front().settings.config;
    const auto fixed =
        find_candidates({.config = all_fixed, .model = model_, .block_count = 2}, options);
    ASSERT_FALSE(fixed.ok());
    EXPECT_EQ(fixed.error().code, offload::ErrorCode::usage);
    EXPECT_THAT(fixed.error().text(), HasSubstr("nothing to choose between"));

    config_.offload.gpu_budget_bytes = 4096;
    const auto too_small = find_candidates(open, options);
    ASSERT_FALSE(too_small.ok());
    EXPECT_EQ(too_small.error().code, offload::ErrorCode::does_not_fit);
}

}  // namespace
}  // namespace headrace::engine::tests
