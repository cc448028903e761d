// Goal: LOAD-4: a run whose weights and states are on the drive never holds them in memory: the
// peak resident memory stays within what the program costs without a model plus its budgets.
// Method: runs of train() in a process of its own (the peak of a process never falls), with a model
// whose weights, gradients and states are twice as large as all budgets together; the last is a
// resume that repacks. The kernel counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>
#include <random>

#include "engine/train/resident.h"
#include "engine/train/train.h"
#include "offload/units.h"
#include "tests/engine/train/tiny_run.h"

namespace headrace::engine::tests {
namespace {

using offload::mib;

LlamaConfig large_model() {
    LlamaConfig config = tiny_config(true, 8);
    config.hidden_size = 512;
    config.intermediate_size = 1536;
    config.head_count = 8;
    config.kv_head_count = 4;
    config.head_dim = 64;
    config.vocabulary_size = 16384;
    return config;
}

// Streamed, so that the test itself holds no more than 1 MiB of it.
void write_model(const LlamaConfig& config, const TestFolder& folder) {
    std::filesystem::create_directory(folder.path("source"));
    folder.write("source/config.json", R"({"torch_dtype": "bfloat16"})");
    auto writer = CheckpointWriter::create({.folder = folder.path("model"),
                                            .source_folder = folder.path("source"),
                                            .layers = layers_of(config),
                                            .dtype = offload::Dtype::bf16});
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    std::mt19937 random(3);
    std::vector<uint16_t> values(mib / sizeof(uint16_t));
    for (uint16_t& value : values) {
        value = offload::float_to_bf16(static_cast<float>(random() % 1000) * 1e-4f - 0.05f);
    }
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    for (const offload::LayerSpec& layer : layers_of(config)) {
        for (const offload::TensorSpec& tensor : layer.tensors) {
            const uint64_t count = element_count_of(tensor);
            for (uint64_t first = 0; first < count; first += values.size()) {
                const uint64_t piece = std::min<uint64_t>(values.size(), count - first);
                ASSERT_TRUE(
                    writer->write(tensor.name, first, bytes.first(piece * sizeof(uint16_t))).ok());
            }
        }
    }
    ASSERT_TRUE(writer->finish().ok());
}

std::string samples() {
    std::string text;
    for (int sample = 0; sample < 4; ++sample) {
        std::string ids = "1";
        for (int token = 1; token < 64; ++token) {
            ids += fmt::format(", {}", sample * 1000 + token * 3);
        }
        text += fmt::format("{{\"input_ids\": [{}]}}\n", ids);
    }
    return text;
}

int64_t number_of(const std::vector<Metric>& metrics, std::string_view name) {
    for (const Metric& metric : metrics) {
        if (metric.name == name) return std::get<int64_t>(metric.value);
    }
    ADD_FAILURE() << "no metric " << name;
    return 0;
}

TEST(Memory, load_4_StatesOnTheDriveAreNotInMemory) {
    const TestFolder folder;
    const LlamaConfig model = large_model();
    write_model(model, folder);
    std::filesystem::create_directory(folder.path("drive"));
    std::filesystem::create_directory(folder.path("out"));
    RunConfig config;
    config.output_dir = folder.path("out");
    config.gradient_accumulation_steps = 2;
    config.max_steps = 2;
    config.offload.gpu_budget_bytes = 160 * mib;
    config.offload.ram_budget_bytes = 64 * mib;
    config.offload.nvme_paths = {folder.path("drive")};
    config.offload.advanced.stash_tier = offload::TierShares::all_on(offload::Tier::nvme);
    config.offload.advanced.compute_threads = 1;
    const Dataset data = Dataset::read({.path = folder.write("data.jsonl", samples()),
                                        .vocabulary_size = model.vocabulary_size,
                                        .max_length = 64})
                             .value();
    std::vector<Metric> metrics;
    bool is_repacked = false;
    int64_t steps_until_signal = std::numeric_limits<int64_t>::max();
    const auto run = [&] {
        return train(
            {.config = config,
             .model_dir = folder.path("model"),
             .model = model,
             .train_data = data,
             .eval_data = nullptr},
            {.note = [&](const std::string& line) { is_repacked |= line.starts_with("repacking"); },
             .warn = [](const std::string&) {},
             .step = [&](const StepRecord&, int64_t) { --steps_until_signal; },
             .evaluation = [](const EvalRecord&) {},
             .finished = [&](const std::vector<Metric>& all) { metrics = all; },
             .begin = [] { return offload::Status{}; },
             .stop_signal = [&] { return steps_until_signal <= 0 ? SIGINT : 0; },
             .stuck = [](const std::string&) {}});
    };
    const offload::Status status = run();
    ASSERT_TRUE(status.ok()) << status.error().text();
    const int64_t budgets =
        number_of(metrics, "gpu_budget_bytes") + number_of(metrics, "ram_budget_bytes");
    const int64_t held =
        number_of(metrics, "peak_rss_bytes") - number_of(metrics, "baseline_rss_bytes");
    const int64_t model_bytes = number_of(metrics, "parameter_bytes") +
                                number_of(metrics, "gradient_bytes") +
                                number_of(metrics, "state_bytes");
    EXPECT_GT(model_bytes, 2 * budgets) << "else the test says nothing";
    EXPECT_LE(held, budgets + budgets / 10);
    EXPECT_GT(number_of(metrics, "nvme_bytes"), model_bytes - 1);

    // Nor does one that is stopped and goes on, its parts repacked.
    const int64_t baseline = number_of(metrics, "baseline_rss_bytes");
    config.max_steps = 3;  // the second may have begun when the first is told
    steps_until_signal = 1;
    EXPECT_FALSE(run().ok());
    steps_until_signal = std::numeric_limits<int64_t>::max();
    config.resume_from_checkpoint = true;
    config.offload.advanced.part_bytes = mib / 2;
    const offload::Status resumed = run();
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_TRUE(is_repacked);
    const auto peak = static_cast<int64_t>(read_resident_memory().peak_bytes);
    EXPECT_LE(peak - baseline, budgets + budgets / 10);
}

}  // namespace
}  // namespace headrace::engine::tests
