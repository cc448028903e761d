// Goal: every line of metrics.jsonl is one JSON object on the drive at once, whatever the numbers.
// Method: the file is read back after each append; a full drive is /dev/full.
#include "engine/train/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(MetricsTest, each_line_is_valid_at_once) {
    const TestFolder folder;
    folder.write("metrics.jsonl", "an old run\n");
    auto file = MetricsFile::create(folder.path("metrics.jsonl"));
    ASSERT_TRUE(file.ok()) << file.error().text();
    EXPECT_EQ(folder.read("metrics.jsonl"), "");
    ASSERT_TRUE(file->append(StepRecord{.step = 2,
                                        .step_count = 30,
                                        .loss = 1.5,
                                        .grad_norm = INFINITY,
                                        .time_ms = 500,
                                        .token_count = 1000,
                                        .nvme_read_bytes = 2'000'000'000,
                                        .nvme_write_bytes = 500'000'000}));
    const Json step = Json::parse(folder.read("metrics.jsonl"));
    EXPECT_EQ(step["step"], 2);
    EXPECT_EQ(step["total_steps"], 30);
    EXPECT_EQ(step["loss"], 1.5);
    EXPECT_TRUE(step["grad_norm"].is_null());
    EXPECT_EQ(step["tokens_per_s"], 2000);
    EXPECT_EQ(step["nvme_gb_per_s"], 5);
    EXPECT_EQ(step["skipped"], false);
    EXPECT_EQ(step["warm_up"], false);

    ASSERT_TRUE(file->append(EvalRecord{.step = 0, .loss = 4.5, .emulated = "\xFF"}));
    ASSERT_TRUE(file->append(StepRecord{.step = 1, .step_count = 30, .emulated = "\xFF"}));
    const std::vector<Metric> metrics = {
        {"peak_rss_bytes", int64_t{1} << 40}, {"ratio", 0.5}, {"weights_sha256", "ab\"c\n\xFF"}};
    ASSERT_TRUE(file->append(metrics));
    const std::string text = folder.read("metrics.jsonl");
    EXPECT_EQ(std::ranges::count(text, '\n'), 4);
    EXPECT_THAT(text, HasSubstr("\n{\"step\":0,\"eval_loss\":4.5,"));
    const Json last = Json::parse(text.substr(text.rfind("{")));
    EXPECT_EQ(last["peak_rss_bytes"], int64_t{1} << 40);
    EXPECT_THAT(last["weights_sha256"].get<std::string>(), HasSubstr("ab\"c\n"));
}

TEST(MetricsTest, rates_of_no_time_are_zero) {
    EXPECT_EQ(StepRecord{.token_count = 5}.tokens_per_s(), 0);
    EXPECT_EQ(StepRecord{.nvme_read_bytes = 5}.nvme_gb_per_s(), 0);
}

TEST(MetricsTest, a_file_that_cannot_be_written_is_an_error) {
    const auto absent = MetricsFile::create("/nowhere/metrics.jsonl");
    ASSERT_FALSE(absent.ok());
    EXPECT_THAT(absent.error().text(), HasSubstr("'/nowhere/metrics.jsonl': No such file"));
    auto full = MetricsFile::create("/dev/full");
    ASSERT_TRUE(full.ok());
    const auto status = full->append(EvalRecord{});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().text(), HasSubstr("'/dev/full': No space left"));
}

// A run that goes on after 2 steps says the third again: once is enough for a reader.
TEST(MetricsTest, a_resumed_run_cuts_off_what_it_will_say_again) {
    const TestFolder folder;
    const std::string kept =
        "{\"step\":0,\"eval_loss\":3.5}\n{\"step\":1,\"loss\":3}\n{\"step\":1,\"eval_loss\":3}\n"
        "{\"step\":2,\"loss\":2.5}\n";
    folder.write("metrics.jsonl", kept +
                                      "{\"step\":2,\"eval_loss\":2.4}\n{\"step\":3,\"loss\":2}\n"
                                      "{\"event\":\"finished\"}\n{\"step\":4,\"lo");
    auto file = MetricsFile::resume(folder.path("metrics.jsonl"), 2);
    ASSERT_TRUE(file.ok()) << file.error().text();
    EXPECT_EQ(folder.read("metrics.jsonl"), kept);
    ASSERT_TRUE(file->append(StepRecord{.step = 3, .step_count = 4}));
    const std::string text = folder.read("metrics.jsonl");
    EXPECT_TRUE(text.starts_with(kept));
    EXPECT_EQ(Json::parse(text.substr(kept.size()))["step"], 3);
    // The file may be gone: a run is resumed from its store, not from its log.
    EXPECT_TRUE(MetricsFile::resume(folder.path("new.jsonl"), 2).ok());
    EXPECT_EQ(folder.read("new.jsonl"), "");
}

}  // namespace
}  // namespace headrace::engine
