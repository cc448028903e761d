// Goal: what `plan` says of public models on ordinary machines is right where it can be checked by
// hand: whether it fits, what moves, what binds, what would move it. Method: the shapes and
// machines that come with the project; sums from the definition.
#include "engine/plan/forecast.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/models/shape.h"
#include "engine/plan/drive_writes.h"
#include "offload/numbers.h"
#include "offload/units.h"

namespace headrace::engine {
namespace {

using offload::ErrorCode;
using offload::LaneKind;
using offload::Tier;
using testing::HasSubstr;
using testing::Not;

LlamaConfig shape(const std::string& name) {
    const std::string path = HEADRACE_CONFIGS "/models/" + name + ".json";
    std::ifstream file(path);
    return parse_shape({std::istreambuf_iterator<char>(file), {}}, path).value().config;
}

MachineFile machine(const std::string& name) {
    return load_machine(HEADRACE_CONFIGS "/hardware/" + name + ".yaml").value();
}

RunConfig run_of(int64_t micro_batches, int64_t max_length = 2048) {
    RunConfig config;
    config.gradient_accumulation_steps = micro_batches;
    config.max_length = max_length;
    return config;
}

double alone_s(const RunForecast& forecast, LaneKind lane) {
    return forecast.placement.forecast.alone_s[static_cast<size_t>(lane)];
}

std::string text_of(const RunForecast& forecast, const Prices& prices = {}) {
    return fmt::format("{}", fmt::join(describe(forecast, prices), "\n"));
}

// The picture has the lines, a row for every lane that works, and the path whose sum is the step.
TEST(Forecast, IsDrawn) {
    const RunForecast forecast =
        forecast_run(run_of(8), shape("llama-2-7b"), machine("rtx4090")).value();
    const std::string html = html_of(forecast, {});
    for (const std::string_view words :
         {"<h1>One step of 6.74 billion parameters on rtx4090</h1>", "tokens/s", ">nvme_read<",
          ">cpu<", ">h2d<", ">gpu<", ">d2h<", ">nvme_write<", "critical path: "}) {
        EXPECT_TRUE(html.find(words) != std::string::npos) << words;
    }
    EXPECT_LT(html.size(), 4'000'000u);
}

// TUNE-2: an estimate tells states, buffers on their way, activations and workspace, on every tier;
// they add up to what it says in all, and states and weights to what they are by definition.
TEST(Forecast, tune_2_SaysWhatTheBytesOfATierAreFor) {
    const RunForecast forecast =
        forecast_run(run_of(8), shape("llama-2-13b"), machine("rtx4090")).value();
    const nlohmann::json json = nlohmann::json::parse(json_of(forecast, {}));
    std::map<std::string, double> sums;
    for (const std::string tier : {"gpu", "ram", "nvme"}) {
        uint64_t sum_bytes = 0;
        for (const auto& [purpose, size_bytes] : json["bytes_by_purpose"][tier].items()) {
            EXPECT_GT(size_bytes, 0) << tier << " " << purpose;
            sum_bytes += size_bytes.get<uint64_t>();
            sums[purpose] += size_bytes.get<double>();
        }
        EXPECT_EQ(sum_bytes, json["needs"][tier + "_bytes"].get<uint64_t>()) << tier;
    }
    const auto parameters = json["parameter_count"].get<double>();
    // What is committed is on the drive, two generations of it, cached or not.
    const nlohmann::json& drive = json["bytes_by_purpose"]["nvme"];
    EXPECT_NEAR(drive["weights"].get<double>(), 2 * 2 * parameters, 0.001 * 4 * parameters);
    EXPECT_NEAR(drive["states"].get<double>(), 2 * 10 * parameters, 0.001 * 20 * parameters);
    EXPECT_NEAR(sums["gradients"], 2 * parameters, 0.001 * 2 * parameters);
    EXPECT_EQ(sums["activations"], 40.0 * 8 * 2048 * 5120 * 2);
    EXPECT_GT(sums["workspace"], 0);
    EXPECT_GT(sums["on their way"], 0);
    EXPECT_THAT(text_of(forecast), HasSubstr("on ram"));
}

TEST(Forecast, A13bModelOnADesktopCard) {
    const RunForecast forecast =
        forecast_run(run_of(8), shape("llama-2-13b"), machine("rtx4090")).value();
    const Placement& best = forecast.placement;
    EXPECT_GE(best.base, offload::Base::weights_in_ram) << "56 GiB hold no 156 GB of states";
    EXPECT_EQ(forecast.tokens_per_step, 16384u);
    EXPECT_LE(best.needs.gpu_bytes, forecast.machine.ceilings.gpu_bytes);
    EXPECT_LE(best.needs.ram_bytes, forecast.machine.ceilings.ram_bytes);
    // 13.0 billion parameters, 12 bytes each written; twice that of places.
    EXPECT_NEAR(static_cast<double>(forecast.written_bytes), 12 * 13.016e9, 5e9);
    EXPECT_GT(best.needs.nvme_bytes, 2 * forecast.written_bytes * 99 / 100);
    // 16384 tokens at 150 TFLOPS: 6 to 8 operations per parameter and token.
    EXPECT_GT(alone_s(forecast, LaneKind::gpu), 6 * 13.0e9 * 16384 / 150e12);
    EXPECT_LT(alone_s(forecast, LaneKind::gpu), 8.8 * 13.1e9 * 16384 / 150e12);
    const double drive_s =
        alone_s(forecast, LaneKind::nvme_read) + alone_s(forecast, LaneKind::nvme_write);
    EXPECT_GE(best.forecast.step_s, 0.999 * drive_s);
    EXPECT_LE(best.forecast.step_s, 1.15 * drive_s) << "the drives bind, and are kept busy";
    ASSERT_FALSE(forecast.remedies.empty());
    EXPECT_EQ(forecast.remedies.front().change, "drives twice as fast");
    const std::string text = text_of(forecast, {.step_count = 500, .per_hour = 0.4});
    for (const char* part : {"13.0 billion", "rtx4090", "states on nvme", "the drives alone need",
                             "the card binds from about", "500 steps", "cost"}) {
        EXPECT_THAT(text, HasSubstr(part));
    }
}

// A plan for this machine is what a run on it does: one question, one answer.
TEST(Forecast, PlanAndTrainGiveTheSamePlacement) {
    const MachineFile file = machine("rtx4090");
    const RunConfig plain = run_of(8);
    const RunForecast predicted = forecast_run(plain, shape("llama-2-7b"), file).value();
    RunConfig config = plain;
    config.offload.gpu_budget_bytes = file.ceilings.gpu_bytes;
    config.offload.ram_budget_bytes = file.ceilings.ram_bytes;
    config.offload.nvme_paths = {"/mnt/0", "/mnt/1"};
    const Site site =
        site_of(config, FreeMemory{.available_bytes = uint64_t{1} << 40}, file.machine);
    const Placement placed = place(predicted.job, config, site).value();
    EXPECT_EQ(placed.plan, predicted.placement.plan);
    EXPECT_EQ(placed.part_bytes, predicted.placement.part_bytes);
    EXPECT_EQ(placed.forecast.step_s, predicted.placement.forecast.step_s);
    EXPECT_EQ(placed.part_bytes, 64 * offload::mib) << "parts grow with the model";
}

// The words are those of the plan, also where a run fixes what no planner would choose.
TEST(Forecast, SaysWhereWeightsAndStatesAre) {
    const auto text = [](Tier weights, Tier states, std::optional<double> update_twice = {}) {
        RunConfig config = run_of(1);
        config.offload.parameters = TierShares::all_on(weights);
        config.offload.optimizer = TierShares::all_on(states);
        config.offload.advanced.update_twice = update_twice;
        MachineFile large = machine("rtx4090");
        large.ceilings.gpu_bytes = large.ceilings.ram_bytes = uint64_t{1} << 40;
        return text_of(forecast_run(config, shape("llama-3.2-1b"), large).value());
    };
    EXPECT_THAT(text(Tier::nvme, Tier::ram), HasSubstr("weights on nvme, states in ram,"));
    EXPECT_THAT(text(Tier::ram, Tier::gpu), HasSubstr("weights in ram, states on the card,"));
    EXPECT_THAT(text(Tier::gpu, Tier::nvme), HasSubstr("weights on the card, states on nvme,"));
    EXPECT_THAT(text(Tier::ram, Tier::ram), HasSubstr("weights and states in ram, streamed"));
    EXPECT_THAT(text(Tier::nvme, Tier::nvme, 0.5), HasSubstr("50% of the updates computed twice"));
    EXPECT_THAT(text(Tier::ram, Tier::ram, 0.5), Not(HasSubstr("twice,")));
}

// The threads, kernels and padded samples of the run that it is a plan for.
TEST(Forecast, AsksWhatTrainAsks) {
    MachineFile host = machine("rtx4090");
    host.machine.compute_cores = 2;
    const auto job_on = [](const MachineFile& file, void (*change)(RunConfig&)) {
        RunConfig config = run_of(4, 1001);
        change(config);
        return forecast_run(config, shape("llama-3.2-1b"), file).value().job;
    };
    const auto job = [&](void (*change)(RunConfig&)) { return job_on(host, change); };
    const Job plain = job([](RunConfig&) {});
    EXPECT_EQ(plain.column_count_max, 1008) << "samples are padded to a multiple of 8";
    const Job threads = job([](RunConfig& c) { c.offload.advanced.compute_threads = 500; });
    const Job more = job([](RunConfig& c) { c.offload.advanced.compute_threads = 1000; });
    EXPECT_GT(more.workspace_bytes, threads.workspace_bytes + 20 * offload::mib);
    const Job reference =
        job([](RunConfig& c) { c.offload.advanced.kernels = Kernels::reference; });
    EXPECT_GT(reference.workspace_bytes, plain.workspace_bytes);
    // What a card needs does not depend on the processor that plans.
    const auto card_bytes = [&](void (*change)(RunConfig&)) {
        return job_on(machine("rtx4090"), change).workspace_bytes;
    };
    EXPECT_EQ(card_bytes([](RunConfig& c) { c.offload.advanced.compute_threads = 500; }),
              card_bytes([](RunConfig& c) { c.offload.advanced.compute_threads = 1000; }));
}

// Reading and writing together are never faster than the slower of the two alone.
TEST(Forecast, ADriveThatDoesBothAtOnceIsStillItsSlowerHalf) {
    MachineFile duplex = machine("rtx4090");
    duplex.machine.drive.both_ways = 2;
    const RunForecast forecast = forecast_run(run_of(8), shape("llama-2-13b"), duplex).value();
    const double write_s = alone_s(forecast, LaneKind::nvme_write);
    ASSERT_GT(write_s, 1.5 * alone_s(forecast, LaneKind::nvme_read));
    ASSERT_GT(write_s, alone_s(forecast, LaneKind::gpu));
    EXPECT_THAT(text_of(forecast),
                HasSubstr("the drives alone need " + offload::format_seconds(write_s)));
}

TEST(Forecast, WhatFitsIsNotOffloaded) {
    MachineFile large = machine("h100-80gb");
    large.ceilings.gpu_bytes = 200 * offload::gib;
    const RunForecast forecast = forecast_run(run_of(4), shape("llama-2-7b"), large).value();
    EXPECT_EQ(forecast.placement.base, offload::Base::card);
    EXPECT_EQ(forecast.written_bytes, 0u);
    EXPECT_THAT(text_of(forecast), HasSubstr("do not offload, it fits"));
}

// A run that would wear the drives more than it may is refused before it begins.
TEST(Forecast, AWriteLimitThatIsTooLowIsRefused) {
    RunConfig config = run_of(8);
    config.max_steps = 100;
    config.offload.nvme_write_limit_bytes = 10'000'000'000'000;
    const auto refused = forecast_run(config, shape("llama-2-13b"), machine("rtx4090"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
    for (const char* part : {"100 steps write 15", "allows 10.0 TB: 63 steps", "max_steps"}) {
        EXPECT_THAT(refused.error().text(), HasSubstr(part));
    }
    config.max_steps = 60;
    EXPECT_TRUE(forecast_run(config, shape("llama-2-13b"), machine("rtx4090")).ok());
    config.max_steps.reset();
    EXPECT_TRUE(forecast_run(config, shape("llama-2-13b"), machine("rtx4090")).ok());
    config.offload.nvme_write_limit_bytes = 100'000'000'000;
    const auto none = forecast_run(config, shape("llama-2-13b"), machine("rtx4090"));
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(none.error().text(), HasSubstr("a run of one step writes"));
}

// What train stops by (engine/train/stop.h): loading, and the saves of a run that keeps its states
// in memory, are written too.
TEST(Forecast, AWriteLimitHoldsLoadingAndSavesToo) {
    RunConfig config = run_of(8);
    config.max_steps = 9;
    config.save_steps = 4;  // 4, 8 and 9
    config.offload.commit = CommitMode::at_saves;
    config.offload.parameters = TierShares::all_on(offload::Tier::ram);
    config.offload.optimizer = TierShares::all_on(offload::Tier::ram);
    MachineFile large = machine("rtx4090");
    large.ceilings.ram_bytes = 400 * offload::gib;
    const RunForecast forecast = forecast_run(config, shape("llama-2-7b"), large).value();
    EXPECT_EQ(forecast.written_bytes, 0u) << "steps write nothing";
    const DriveWrites writes = drive_writes_of(forecast.placement, LoadedStates::zero, 0);
    EXPECT_EQ(writes.step_bytes, forecast.written_bytes);
    const auto parameters = static_cast<double>(forecast.parameter_count);
    EXPECT_NEAR(static_cast<double>(writes.load_bytes), 2 * parameters, 0.001 * parameters);
    EXPECT_NEAR(static_cast<double>(writes.save_bytes), 12 * parameters, 0.001 * parameters);
    const uint64_t run_bytes = writes.load_bytes + 3 * writes.save_bytes;
    EXPECT_EQ(bytes_of_run(writes, 9, 4), run_bytes);
    EXPECT_EQ(bytes_of_run(writes, 9, {}), writes.load_bytes + writes.save_bytes);
    config.offload.nvme_write_limit_bytes = run_bytes;
    EXPECT_TRUE(forecast_run(config, shape("llama-2-7b"), large).ok());
    config.offload.nvme_write_limit_bytes = run_bytes - 1;
    const auto refused = forecast_run(config, shape("llama-2-7b"), large);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().text(),
                testing::AllOf(HasSubstr("9 steps write 0.2"), HasSubstr("GiB a save"),
                               HasSubstr(": 8 steps")));
    config.offload.nvme_write_limit_bytes = writes.load_bytes + writes.save_bytes - 1;
    config.max_steps.reset();
    EXPECT_FALSE(forecast_run(config, shape("llama-2-7b"), large).ok());
}

TEST(Forecast, SmallerStatesAreFasterAndGentler) {
    const RunForecast forecast =
        forecast_run(run_of(8), shape("llama-2-13b"), machine("rtx4090")).value();
    ASSERT_EQ(forecast.smaller_states.size(), 2u);
    const SmallerStates& in_bf16 = forecast.smaller_states[0];
    const SmallerStates& in_int8 = forecast.smaller_states[1];
    EXPECT_LT(in_bf16.step_s, forecast.placement.forecast.step_s);
    EXPECT_LT(in_int8.step_s, in_bf16.step_s);
    EXPECT_LT(in_bf16.written_bytes, forecast.written_bytes);
    EXPECT_LT(in_int8.written_bytes, in_bf16.written_bytes);
    const auto json = nlohmann::json::parse(json_of(forecast, {.step_count = 500, .per_hour = 2}));
    EXPECT_EQ(json["nvme_write_bytes"], forecast.written_bytes);
    EXPECT_EQ(json["placement"]["base"], name_of(forecast.placement.base));
    EXPECT_EQ(json["smaller_states"][1]["optimizer_states"], "int8");
    EXPECT_DOUBLE_EQ(json["step_s"].get<double>(), forecast.placement.forecast.step_s);
    EXPECT_DOUBLE_EQ(json["price"].get<double>(), 2 * json["hours"].get<double>());
    EXPECT_GT(json["lanes"]["gpu"]["alone_s"], 0.0);
}

// Cached parts are written by every step that commits, and by none that does not.
TEST(Forecast, CommitsAtSavesWriteLess) {
    const RunForecast forecast =
        forecast_run(run_of(8), shape("llama-2-13b"), machine("rtx4090")).value();
    ASSERT_GT(forecast.placement.choice.cached_share, 0);
    ASSERT_TRUE(forecast.at_saves.has_value());
    EXPECT_LT(forecast.at_saves->written_bytes, forecast.written_bytes);
    EXPECT_LE(forecast.at_saves->step_s, 1.01 * forecast.placement.forecast.step_s);
    const auto json = nlohmann::json::parse(json_of(forecast, {}));
    EXPECT_EQ(json["commit_at_saves"]["nvme_write_bytes"], forecast.at_saves->written_bytes);
    EXPECT_EQ(json["commit_at_saves"]["nvme_bytes"], forecast.at_saves->nvme_bytes);
    EXPECT_LT(forecast.at_saves->one_copy_bytes, forecast.at_saves->nvme_bytes * 6 / 10);
    EXPECT_GT(forecast.at_saves->one_copy_bytes, forecast.at_saves->nvme_bytes * 4 / 10);
    EXPECT_THAT(text_of(forecast), HasSubstr("; commit=at_saves: "));
    EXPECT_TRUE(html_of(forecast, {}).find("commit=at_saves: ") != std::string::npos);
    RunConfig rare = run_of(8);
    rare.offload.commit = CommitMode::at_saves;
    const RunForecast at_saves =
        forecast_run(rare, shape("llama-2-13b"), machine("rtx4090")).value();
    EXPECT_FALSE(at_saves.at_saves.has_value()) << "it is what the run does";
    EXPECT_NEAR(static_cast<double>(at_saves.written_bytes),
                static_cast<double>(forecast.at_saves->written_bytes),
                0.25 * static_cast<double>(at_saves.written_bytes));
}

TEST(Forecast, LoraIsEstimatedFromTheBytesAndOperationsThatItNeeds) {
    const RunForecast forecast =
        forecast_run(run_of(8), shape("llama-2-13b"), machine("rtx4090")).value();
    ASSERT_TRUE(forecast.lora.has_value());
    const LoraEstimate& lora = *forecast.lora;
    // 40 blocks of hidden 5120, inner 13824: q, k, v, o of 2 x 5120 and three of 5120 + 13824.
    EXPECT_EQ(lora.trained_count, 16u * 40 * (4 * 10240 + 3 * (5120 + 13824)));
    EXPECT_EQ(lora.base_tier, offload::Tier::ram) << "26 GB: more than 22 GiB, less than 56";
    EXPECT_EQ(lora.read_bytes, 0u);
    // 16384 tokens: twice forward and the gradients of what came in, 6 per parameter and token,
    // less what is kept; the weights pass the link twice.
    EXPECT_EQ(lora.longest_lane, "the card");
    EXPECT_GT(lora.step_s, 4 * 12.7e9 * 16384 / 150e12);
    EXPECT_LT(lora.step_s, 6.6 * 13.0e9 * 16384 / 150e12);
    EXPECT_LT(lora.step_s, alone_s(forecast, LaneKind::gpu));
    const auto json = nlohmann::json::parse(json_of(forecast, {}));
    EXPECT_EQ(json["lora"]["is_estimate"], true);
    EXPECT_EQ(json["lora"]["trained_parameter_count"], lora.trained_count);
    EXPECT_DOUBLE_EQ(json["lora"]["step_s"].get<double>(), lora.step_s);
    EXPECT_THAT(text_of(forecast), HasSubstr("or LoRA    estimate: not built yet; rank 16 on all"));
    EXPECT_TRUE(html_of(forecast, {}).find("estimate: not built yet") != std::string::npos);
    // With one micro-batch the link binds; with less ram a part of the base comes from the drives.
    const RunForecast short_step =
        forecast_run(run_of(1, 512), shape("llama-2-13b"), machine("rtx4090")).value();
    EXPECT_EQ(short_step.lora->longest_lane, "the link to the card");
    EXPECT_NEAR(short_step.lora->step_s,
                2 * 2 * 13.016e9 / machine("rtx4090").machine.link.h2d_bytes_per_s, 0.01);
    MachineFile little = machine("rtx4090");
    little.ceilings.ram_bytes = 24 * offload::gib;
    const RunForecast streamed = forecast_run(run_of(1, 512), shape("llama-2-13b"), little).value();
    EXPECT_EQ(streamed.lora->base_tier, offload::Tier::nvme);
    EXPECT_GT(streamed.lora->nvme_bytes, 0u);
    EXPECT_LT(streamed.lora->nvme_bytes, 2 * 13'016'000'000u);
    EXPECT_EQ(streamed.lora->read_bytes, 2 * streamed.lora->nvme_bytes);
    // What fits the card needs no estimate.
    MachineFile large = machine("h100-80gb");
    large.ceilings.gpu_bytes = 200 * offload::gib;
    const RunForecast on_card = forecast_run(run_of(4), shape("llama-2-7b"), large).value();
    EXPECT_FALSE(on_card.lora.has_value());
}

// A machine file may leave the space of its drives out: then none is too little.
TEST(Forecast, DrivesOfUnknownSpaceAreLargeEnough) {
    MachineFile file = machine("rtx4090");
    file.ceilings.nvme_bytes = unlimited_bytes;
    const RunForecast forecast = forecast_run(run_of(1), shape("llama-2-70b"), file).value();
    EXPECT_THAT(text_of(forecast), HasSubstr("of what the drives have"));
    const auto json = nlohmann::json::parse(json_of(forecast, {}));
    EXPECT_TRUE(json["ceilings"]["nvme_bytes"].is_null());
}

TEST(Forecast, MoreTokensMakeTheCardBind) {
    const RunForecast few =
        forecast_run(run_of(4), shape("llama-3-8b"), machine("a100-80gb")).value();
    const RunForecast many =
        forecast_run(run_of(64), shape("llama-3-8b"), machine("a100-80gb")).value();
    const auto speed = [](const RunForecast& forecast) {
        return static_cast<double>(forecast.tokens_per_step) / forecast.placement.forecast.step_s;
    };
    EXPECT_GT(speed(many), speed(few));
    EXPECT_THAT(text_of(many), HasSubstr("the card binds at 131,072 tokens a step"));
}

// On both sides of the balance point, and on it, one lane is busy nearly the whole step: the
// drives, which read and write in turns, or the card. Nothing near is taken that would leave them
// idle.
TEST(Forecast, OneLaneIsBusyTheWholeStep) {
    for (const std::string name : {"llama-2-7b", "llama-2-13b"}) {
        for (const int64_t micro_batches : {4, 16, 32, 64, 128}) {
            RunConfig config = run_of(micro_batches);
            config.offload.ram_budget_bytes = 24 * offload::gib;
            const RunForecast forecast =
                forecast_run(config, shape(name), machine("rtx4090")).value();
            const double drives_s =
                alone_s(forecast, LaneKind::nvme_read) + alone_s(forecast, LaneKind::nvme_write);
            const double busiest_s = std::max(drives_s, alone_s(forecast, LaneKind::gpu));
            EXPECT_LE(forecast.placement.forecast.step_s, 1.10 * busiest_s)
                << name << ", " << micro_batches << " micro-batches";
        }
    }
}

TEST(Forecast, WhatDoesNotFitIsRefusedWithItsNumbers) {
    MachineFile small = machine("rtx3090");
    small.ceilings.nvme_bytes = 500'000'000'000;
    const auto refused = forecast_run(run_of(1), shape("llama-2-70b"), small);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(refused.error().text(), HasSubstr("(too little)"));
    // A budget of the run file is a ceiling, too.
    RunConfig config = run_of(1);
    config.offload.gpu_budget_bytes = 1 * offload::gib;
    EXPECT_FALSE(forecast_run(config, shape("llama-2-13b"), machine("rtx4090")).ok());
}

// The search simulates few of the promises, and the bound by which it takes them knows nothing of
// how far ahead a ring reads: it must not end in shorter ones than it would be told to take.
TEST(Forecast, NoRingThatARunFixesIsFasterThanWhatIsFound) {
    struct Row {
        std::string model;
        std::string machine;
        uint64_t ram_gib;
        uint64_t gpu_gib;
    };
    for (const Row& row :
         {Row{"qwen2.5-7b", "rtx5090", 48, 30}, Row{"qwen2.5-7b", "rtx4090", 12, 22},
          Row{"llama-3.2-1b", "rtx3090", 6, 10}, Row{"llama-3.2-1b", "rtx4090", 6, 22}}) {
        const LlamaConfig model = shape(row.model);
        RunConfig config = run_of(64);
        config.offload.ram_budget_bytes = row.ram_gib * offload::gib;
        config.offload.gpu_budget_bytes = row.gpu_gib * offload::gib;
        const auto step_s = [&] {
            return forecast_run(config, model, machine(row.machine))
                .value()
                .placement.forecast.step_s;
        };
        const double found_s = step_s();
        for (const int64_t ring_slots : {2, 4, 8}) {
            config.offload.advanced.ring_slots = ring_slots;
            EXPECT_LT(found_s, 1.02 * step_s())
                << row.model << " " << row.machine << " " << ring_slots;
        }
    }
}

// A share of cached parts that caches none is none.
TEST(Forecast, WhatIsNotCachedIsNotSaid) {
    RunConfig config = run_of(1);
    config.offload.parameters = TierShares::all_on(Tier::nvme);
    const RunForecast fixed =
        forecast_run(config, shape("llama-3.2-1b"), machine("rtx4090")).value();
    EXPECT_EQ(fixed.placement.choice.cached_share, 0);
    EXPECT_THAT(text_of(fixed), Not(HasSubstr("cached")));
    RunConfig coarse = run_of(1);
    coarse.offload.gpu_budget_bytes = 6 * offload::gib;
    coarse.offload.ram_budget_bytes = 4 * offload::gib;
    coarse.offload.advanced.part_bytes = 256 * offload::mib;
    const Placement best =
        forecast_run(coarse, shape("llama-3.2-1b"), machine("rtx3090")).value().placement;
    const bool is_any_near = std::ranges::any_of(best.plan.homes, [](const auto& homes) {
        return homes.hi == Tier::ram || homes.opt == Tier::ram;
    });
    EXPECT_EQ(best.choice.cached_share > 0, is_any_near);
}

}  // namespace
}  // namespace headrace::engine
