// TrainRun: train() on a tiny model and a few samples of token ids, in a folder of its own, and
// what it told. What the tests of whole runs share.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/train/train.h"
#include "offload/units.h"
#include "tests/engine/train/tiny_run.h"

namespace headrace::engine::tests {

// What a run told its reporter.
struct Told {
    std::vector<std::string> notes;
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
        config_.offload.parameters = TierShares::all_on(offload::Tier::nvme);
        config_.offload.optimizer = TierShares::all_on(offload::Tier::nvme);
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
             .eval_data = &eval_data,
             .drives = drives_},
            {.note = [&](const std::string& line) { told.notes.push_back(line); },
             .warn = [&](const std::string& line) { told.warnings.push_back(line); },
             .step = [&](const StepRecord& record, int64_t) { told.steps.push_back(record); },
             .evaluation = [&](const EvalRecord& record) { told.evaluations.push_back(record); },
             .finished = [](const std::vector<Metric>&) {},
             .begin = [] { return offload::Status{}; },
             .stop_signal = [&] { return std::ssize(told.steps) >= stop_after_ ? SIGINT : 0; },
             .stuck = [](const std::string& line) { CHECK_TEXT(false, line); }});
        return told;
    }

    nlohmann::json last_metrics() const {
        std::istringstream lines(folder_.read("out/metrics.jsonl"));
        std::string line;
        std::string last;
        while (std::getline(lines, line)) last = line;
        return nlohmann::json::parse(last);
    }

    TestFolder folder_;
    RunConfig config_;
    DriveHooks drives_;  // faults of the drives
    // A signal asks to stop when so many steps were told.
    int64_t stop_after_ = std::numeric_limits<int64_t>::max();
};

}  // namespace headrace::engine::tests
