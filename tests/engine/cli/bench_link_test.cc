// Goal: `bench link` measures every row that it promises, beside an update too, and refuses what
// does not fit before it takes anything; loops beside each other really overlap.
// Method: little memory and short measurements; figures are not judged, their relations are.
#include "engine/cli/bench_link.h"

#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/cli/loops.h"

namespace headrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchLinkCommand command() {
    BenchLinkCommand made;
    made.size_bytes = offload::mib;
    made.block_bytes = 64 * offload::kib;
    made.rounds = 3;
    made.seconds_min = 0.001;
    return made;
}

TEST(BenchLinkTest, every_row_is_measured_and_held_against_its_ceiling) {
    const auto bench = bench_link(command(), {.core_count = 2, .free_bytes = offload::gib});
    ASSERT_TRUE(bench.ok()) << bench.error().text();
    std::vector<std::string> names;
    for (const BenchRow& row : bench->copies) {
        names.push_back(row.name);
        EXPECT_EQ(row.unit, "GB/s");
        EXPECT_EQ(row.samples.size(), 3u);
        EXPECT_GT(row.achieved, 0);
        EXPECT_DOUBLE_EQ(row.ceiling, bench->figures.stream_bytes_per_s / 2e9);
    }
    EXPECT_THAT(names, ElementsAre("ram to card", "card to ram", "both ways at once",
                                   "both ways beside an update"));
    ASSERT_EQ(bench->updates.size(), 2u);
    EXPECT_DOUBLE_EQ(bench->updates[1].ceiling, bench->updates[0].achieved);
    EXPECT_DOUBLE_EQ(bench->figures.h2d_bytes_per_s, bench->copies[0].achieved * 1e9);
    EXPECT_THAT(text_of(*bench), HasSubstr("update beside both ways"));
    const auto json = nlohmann::json::parse(json_of(bench->copies));
    EXPECT_EQ(json.size(), 4u);
    EXPECT_EQ(json[0]["against"], "half of the stream of 2 cores");
}

// As `--size 5MB --block 1MB` asks for: no multiple of a page.
TEST(BenchLinkTest, a_size_in_powers_of_ten_is_one_too) {
    BenchLinkCommand decimal = command();
    decimal.size_bytes = 1'000'001;
    decimal.block_bytes = 10'001;
    const auto bench = bench_link(decimal, {.core_count = 2, .free_bytes = offload::gib});
    ASSERT_TRUE(bench.ok()) << bench.error().text();
    EXPECT_GT(bench->figures.both_bytes_per_s, 0);
}

TEST(BenchLinkTest, what_does_not_fit_is_refused_with_the_numbers) {
    const auto bench = bench_link(command(), {.core_count = 2, .free_bytes = offload::mib});
    ASSERT_FALSE(bench.ok());
    EXPECT_EQ(bench.error().code, offload::ErrorCode::does_not_fit);
    EXPECT_THAT(bench.error().text(), HasSubstr("1.00 MiB each way"));
    EXPECT_THAT(bench.error().text(), HasSubstr("lower --size"));
}

TEST(BenchLinkTest, it_can_be_stopped) {
    const auto bench = bench_link(
        command(),
        {.core_count = 1, .free_bytes = offload::gib, .should_stop = [] { return true; }});
    ASSERT_FALSE(bench.ok());
    EXPECT_EQ(bench.error().code, offload::ErrorCode::stopped);
}

// Each waits for the other: alone, neither would end.
TEST(LoopsTest, loops_beside_each_other_run_at_the_same_time) {
    std::atomic<int> first = 0;
    std::atomic<int> second = 0;
    const auto meet = [](std::atomic<int>& mine, std::atomic<int>& other) {
        mine = 1;
        while (other == 0) std::this_thread::yield();
        return 3.0;
    };
    const std::vector<Loop> loops = {[&] { return meet(first, second); },
                                     [&] { return meet(second, first); }};
    const std::vector<double> rates = rates_beside(loops, 0);
    ASSERT_EQ(rates.size(), 2u);
    EXPECT_GT(rates[0], 0);
    EXPECT_GT(rates[1], 0);
}

}  // namespace
}  // namespace headrace::engine
