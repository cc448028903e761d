// Goal: `bench adam` measures every row it promises, holds each against the best stream of its
// group, and refuses what does not fit before it takes anything.
// Method: few parameters and short measurements; figures are not judged, their relations are.
#include "engine/cli/bench_adam.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace headrace::engine {
namespace {

using offload::Dtype;
using offload::StateFormat;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchAdamCommand command() {
    BenchAdamCommand made;
    made.parameter_counts = {65536};
    made.rounds = 3;
    made.seconds_min = 0;
    return made;
}

AdamBenchContext context() {
    return {.core_count = 2, .free_bytes = offload::gib};
}

TEST(BenchAdamTest, every_format_and_thread_count_has_its_update_and_its_streams) {
    const auto groups = bench_adam(command(), context());
    ASSERT_TRUE(groups.ok()) << groups.error().text();
    ASSERT_EQ(groups->size(), 6u);  // three formats, one and two threads
    for (const AdamBenchGroup& group : *groups) {
        std::vector<std::string> names;
        double best_stream = 0;
        for (const BenchRow& row : group.rows) {
            names.push_back(row.name);
            EXPECT_EQ(row.unit, "Gparam/s");
            EXPECT_EQ(row.samples.size(), 3u);
            EXPECT_GT(row.achieved, 0);
            if (row.name.starts_with("stream")) best_stream = std::max(best_stream, row.achieved);
        }
        EXPECT_THAT(
            names,
            ElementsAre("update", "update and page sums", "the new weight alone",
                        "update, in cache", "stream, regular, huge pages",
                        "stream, regular, small pages", "stream, prefetched, huge pages",
                        "stream, prefetched, small pages", "stream, non-temporal, huge pages",
                        "stream, non-temporal, small pages", "triad"));
        for (const BenchRow& row : group.rows) {
            const bool moves_less = row.name == "the new weight alone";
            EXPECT_EQ(row.ceiling, moves_less ? 0 : best_stream);
            EXPECT_EQ(row.against.starts_with("stream, "), !moves_less);
        }
    }
    EXPECT_THAT(groups->front().title, HasSubstr("states in fp32"));
    EXPECT_THAT(groups->front().title, HasSubstr("1 thread"));
    EXPECT_THAT(groups->back().title, HasSubstr("states in int8"));
    EXPECT_THAT(groups->back().title, HasSubstr("2 threads"));
    EXPECT_THAT(text_of(*groups), HasSubstr("update and page sums"));
}

TEST(BenchAdamTest, the_bytes_of_a_parameter_are_those_of_its_formats) {
    struct Case {
        Dtype weight;
        StateFormat states;
        Dtype gradient;
        double bytes_per_parameter;  // twice weight and states, once the gradient
    };
    const std::vector<Case> cases = {{Dtype::bf16, StateFormat::fp32, Dtype::bf16, 26},
                                     {Dtype::bf16, StateFormat::bf16, Dtype::bf16, 18},
                                     {Dtype::bf16, StateFormat::int8, Dtype::bf16, 14.25},
                                     {Dtype::fp32, StateFormat::fp32, Dtype::fp32, 28},
                                     {Dtype::fp16, StateFormat::fp32, Dtype::fp16, 30}};
    for (const Case& one : cases) {
        BenchAdamCommand narrow = command();
        narrow.states = {one.states};
        narrow.weight_dtype = one.weight;
        narrow.gradient_dtype = one.gradient;
        narrow.thread_count = 1;
        narrow.row = "scalar";
        narrow.rounds = 1;
        const auto groups = bench_adam(narrow, context());
        ASSERT_TRUE(groups.ok()) << groups.error().text();
        ASSERT_EQ(groups->size(), 1u);
        const auto list = nlohmann::json::parse(json_of(groups->front().rows));
        EXPECT_DOUBLE_EQ(list[0]["bytes_per_parameter"], one.bytes_per_parameter);
        EXPECT_NEAR(list[0]["gb_per_s"].get<double>(),
                    list[0]["achieved"].get<double>() * one.bytes_per_parameter, 1e-9);
        EXPECT_EQ(list[0]["row"], "scalar");
        EXPECT_EQ(list[0]["threads"], 1);
        EXPECT_EQ(list[0]["parameters"], 65536);
        EXPECT_EQ(list[0]["states"], name_of(one.states));
        EXPECT_EQ(list[0]["weight"], name_of(one.weight));
        EXPECT_EQ(list[0]["gradient"], name_of(one.gradient));
        EXPECT_EQ(list[2]["name"], "the new weight alone");
        EXPECT_LT(list[2]["bytes_per_parameter"], one.bytes_per_parameter);
        EXPECT_EQ(list[3]["name"], "update, in cache");
        EXPECT_EQ(list[3]["row"], "scalar");
        EXPECT_EQ(list[4]["row"], "stream");
        EXPECT_EQ(list[10]["name"], "triad");
        EXPECT_EQ(list[10]["row"], "triad");
        EXPECT_DOUBLE_EQ(list[10]["of_triad"], 1);
        EXPECT_DOUBLE_EQ(list[0]["of_triad"],
                         list[0]["gb_per_s"].get<double>() / list[10]["gb_per_s"].get<double>());
    }
}

TEST(BenchAdamTest, what_does_not_fit_is_refused_with_the_numbers) {
    BenchAdamCommand large = command();
    large.parameter_counts = {65536, 1'000'000'512};
    large.states = {StateFormat::fp32};
    const auto groups = bench_adam(large, context());
    ASSERT_FALSE(groups.ok());
    EXPECT_EQ(groups.error().code, offload::ErrorCode::does_not_fit);
    // 14 bytes for each, and for 64M of them once more, and 12 for the triad.
    EXPECT_THAT(groups.error().text(), HasSubstr("1000000512 parameters take 14.6 GiB"));
    EXPECT_THAT(groups.error().text(), HasSubstr("1.00 GiB is free"));
    EXPECT_THAT(groups.error().text(), HasSubstr("lower --parameters"));
}

TEST(BenchAdamTest, an_unknown_row_and_a_stop_are_errors) {
    BenchAdamCommand foreign = command();
    foreign.row = "neon";
    const auto unknown = bench_adam(foreign, context());
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code, offload::ErrorCode::usage);
    EXPECT_THAT(unknown.error().text(), HasSubstr("neon"));
    int asked_count = 0;
    AdamBenchContext stopping = context();
    stopping.should_stop = [&asked_count] { return asked_count++ == 5; };
    const auto stopped = bench_adam(command(), stopping);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, offload::ErrorCode::stopped);
    EXPECT_EQ(asked_count, 6);
}

}  // namespace
}  // namespace headrace::engine
