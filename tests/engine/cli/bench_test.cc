// Goal: `bench nvme` measures every row it promises, says what each is to be held against, and
// leaves the folders as they were, also when it is stopped or refused.
// Method: small files on this machine's own drive; figures are not judged, their relations are.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/cli/bench_nvme.h"
#include "engine/cli/bench_rows.h"
#include "nvme/drive_cache.h"
#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

using offload::kib;
using offload::mib;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BenchRowsTest, json_has_what_every_bench_promises) {
    const std::vector<BenchRow> rows = {{.name = "read",
                                         .unit = "GB/s",
                                         .samples = {1, 3, 2},
                                         .achieved = 2,
                                         .ceiling = 4,
                                         .against = "the link",
                                         .facts = {{"depth", uint64_t{8}},
                                                   {"path", std::string("/a\xff")},
                                                   {"fill", 0.5},
                                                   {"is_direct", true}}},
                                        {.name = "write", .unit = "GB/s", .achieved = 1}};
    const auto list = nlohmann::json::parse(json_of(rows));
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0]["name"], "read");
    EXPECT_EQ(list[0]["unit"], "GB/s");
    EXPECT_EQ(list[0]["achieved"], 2);
    EXPECT_EQ(list[0]["ceiling"], 4);
    EXPECT_EQ(list[0]["ratio"], 0.5);
    EXPECT_EQ(list[0]["against"], "the link");
    EXPECT_EQ(list[0]["rounds"], 3);
    EXPECT_EQ(list[0]["depth"], 8);
    EXPECT_EQ(list[0]["fill"], 0.5);
    EXPECT_EQ(list[0]["is_direct"], true);
    EXPECT_TRUE(list[1]["ceiling"].is_null());
    EXPECT_TRUE(list[1]["ratio"].is_null());
    EXPECT_TRUE(list[1]["against"].is_null());
}

TEST(BenchRowsTest, a_table_is_aligned) {
    const std::vector<BenchRow> rows = {
        {.name = "read",
         .unit = "GB/s",
         .achieved = 10.456,
         .ceiling = 20.912,
         .facts = {{"cpu", 0.0101}, {"written_bytes", uint64_t{3} << 30}}},
        {.name = "write, long", .unit = "GB/s", .achieved = 2, .facts = {}}};
    EXPECT_EQ(table_of(rows, {{.fact = "cpu", .title = "CPU s/GB"},
                              {.fact = "written_bytes", .title = "written"}}),
              "                GB/s     of  ratio  CPU s/GB   written\n"
              "  read         10.46  20.91   0.50     0.010  3.00 GiB\n"
              "  write, long   2.00\n");
}

class BenchNvmeTest : public testing::Test {
  protected:
    BenchNvmeCommand command() {
        return {.paths = {folder_.path("a")},
                .size_bytes = 4 * mib,
                .block_bytes = 64 * kib,
                .depth = 4,
                .engine = nvme::IoEngine::threads,
                .rounds = 1,
                .seconds_min = 0.02,
                .sustained_bytes = 1};
    }
    void SetUp() override {
        for (const char* name : {"a", "b"}) std::filesystem::create_directory(folder_.path(name));
    }
    bool is_clean() {
        return std::filesystem::is_empty(folder_.path("a")) &&
               std::filesystem::is_empty(folder_.path("b"));
    }
    std::vector<std::string> names_of(const NvmeBenchGroup& group) {
        std::vector<std::string> names;
        for (const BenchRow& row : group.rows) names.push_back(row.name);
        return names;
    }

    TestFolder folder_;
    NvmeBenchContext context_{.drive_cache = folder_.path("drives.json"), .now_unix_s = 1000};
};

TEST_F(BenchNvmeTest, one_path_has_both_kinds_of_buffers_a_burst_and_what_lasts) {
    BenchNvmeCommand reads = command();
    reads.patterns = {nvme::Pattern::read};
    const auto groups = bench_nvme(reads, context_);
    ASSERT_TRUE(groups.ok()) << groups.error().text();
    ASSERT_EQ(groups->size(), 1u);
    const NvmeBenchGroup& group = groups->front();
    EXPECT_THAT(group.title, HasSubstr(folder_.path("a")));
    EXPECT_THAT(names_of(group),
                ElementsAre("read, threads, few buffers", "read, threads, 256 MiB pool",
                            "read, raw, 256 KiB at a time", "write, burst", "write, sustained"));
    for (const BenchRow& row : group.rows) {
        EXPECT_GT(row.achieved, 0) << row.name;
        EXPECT_GE(row.ceiling, row.achieved) << row.name;
        EXPECT_FALSE(row.against.empty()) << row.name;
    }
    const auto list = nlohmann::json::parse(json_of(group.rows));
    for (const char* name :
         {"path", "engine", "buffers", "block_bytes", "depth", "cpu_seconds_per_gb", "fill",
          "written_before_bytes", "write_cache_state", "drive", "file_system", "is_direct"}) {
        EXPECT_TRUE(list[0].contains(name)) << name;
    }
    EXPECT_EQ(list[0]["write_cache_state"], "no fall seen");
    EXPECT_GE(list[0]["written_before_bytes"], 4 * mib);
    EXPECT_FALSE(std::filesystem::exists(folder_.path("drives.json"))) << "no mix was measured";
    EXPECT_THAT(text_of(*groups), HasSubstr("--sustained-bytes"));
    EXPECT_TRUE(is_clean());
}

// SPEED-4: what was measured, and that it was: a drive, past the cache, what was written, beside a
// plain read of the same file. No root is needed for any of it.
TEST_F(BenchNvmeTest, speed_4_a_figure_says_what_it_is_of) {
    const auto groups = bench_nvme(command(), context_);
    ASSERT_TRUE(groups.ok()) << groups.error().text();
    const NvmeBenchGroup& group = groups->front();
    const auto list = nlohmann::json::parse(json_of(group.rows));
    bool has_raw = false;
    for (const auto& row : list) {
        const std::string name = row["name"];
        if (row["pattern"] == "write" && !row.contains("engine")) continue;  // burst, sustained
        EXPECT_EQ(row["block_bytes"], 64 * kib) << name;
        EXPECT_EQ(row["depth"], 4) << name;
        EXPECT_EQ(row["alignment_bytes"], 4096) << name;
        EXPECT_TRUE(row["is_direct"].is_boolean()) << name;
        EXPECT_EQ(row["verified_bytes"], 4 * mib) << name;
        if (row["is_direct"].get<bool>()) {
            EXPECT_EQ(row["copied_blocks"], 0) << name;
        }
        if (!name.starts_with("read,")) continue;
        EXPECT_GT(row["of_raw"], 0) << name;
        has_raw |= name == "read, raw, 256 KiB at a time" && row["of_raw"] == 1;
        if (!row["is_device_speed"].get<bool>()) continue;
        EXPECT_TRUE(row["is_direct"].get<bool>()) << name;
        EXPECT_LE(row.value("cached_share", 0.0), 0.01) << name;
    }
    EXPECT_TRUE(has_raw);
    const std::string text = text_of(*groups);
    EXPECT_THAT(text, HasSubstr("requests of 64.0 KiB at multiples of 4096 bytes, 4 in flight"));
    EXPECT_THAT(text, HasSubstr("read back at the end: 4.00 MiB, every block as it was written"));
    EXPECT_THAT(text, HasSubstr("of raw"));
}

TEST_F(BenchNvmeTest, speed_4_memory_is_not_called_a_drive) {
    const std::string memory = "/dev/shm/headrace_bench_" + std::to_string(getpid());
    std::error_code failure;
    if (!std::filesystem::create_directory(memory, failure)) GTEST_SKIP() << "no /dev/shm";
    BenchNvmeCommand in_memory = command();
    in_memory.paths = {memory};
    const auto groups = bench_nvme(in_memory, context_);
    EXPECT_TRUE(std::filesystem::is_empty(memory));
    std::filesystem::remove(memory);
    ASSERT_TRUE(groups.ok()) << groups.error().text();
    const auto list = nlohmann::json::parse(json_of(groups->front().rows));
    EXPECT_EQ(list[0]["is_direct"], false);
    EXPECT_EQ(list[0]["is_device_speed"], false);
    EXPECT_GT(list[0]["copied_blocks"], 0);
    EXPECT_GT(list[0].value("cached_share", 1.0), 0.99);
    EXPECT_THAT(text_of(*groups), HasSubstr("this is NOT the speed of a drive"));
    EXPECT_FALSE(std::filesystem::exists(folder_.path("drives.json"))) << "never remembered";
}

TEST_F(BenchNvmeTest, several_paths_are_measured_alone_and_together_and_remembered) {
    BenchNvmeCommand both = command();
    both.paths = {folder_.path("a"), folder_.path("b")};
    const auto groups = bench_nvme(both, context_);
    ASSERT_TRUE(groups.ok()) << groups.error().text();
    ASSERT_EQ(groups->size(), 3u);
    const NvmeBenchGroup& all = groups->back();
    EXPECT_EQ(all.title, "all paths together");
    double sum = 0;
    double striped = 0;
    double ceiling = 0;
    for (const BenchRow& row : all.rows) {
        if (!row.name.starts_with("mixed")) continue;
        const bool is_alone = row.name.ends_with("/a") || row.name.ends_with("/b");
        if (is_alone) sum += row.achieved;
        if (!is_alone) {
            striped = row.achieved;
            ceiling = row.ceiling;
            EXPECT_THAT(row.name, HasSubstr("weights "));
        }
    }
    EXPECT_GT(striped, 0);
    EXPECT_DOUBLE_EQ(ceiling, sum);
    const nvme::DriveFacts facts = nvme::read_drive_facts(folder_.path("a"));
    if (!facts.device.empty()) {
        EXPECT_THAT(all.notes, Contains(HasSubstr("lie on one drive (" + facts.disks[0])));
        const auto known = nvme::DriveCache(context_.drive_cache).find(facts, 1000);
        ASSERT_TRUE(known.has_value());
        EXPECT_FALSE(known->is_quick);
    }
    EXPECT_TRUE(is_clean());
}

TEST_F(BenchNvmeTest, stopped_it_takes_everything_away) {
    for (const int stop_after : {0, 3, 12}) {
        int asked_count = 0;
        NvmeBenchContext stopping = context_;
        stopping.should_stop = [&] { return asked_count++ >= stop_after; };
        const auto groups = bench_nvme(command(), stopping);
        ASSERT_FALSE(groups.ok());
        EXPECT_EQ(groups.error().code, offload::ErrorCode::stopped);
        EXPECT_TRUE(is_clean()) << stop_after;
    }
}

TEST_F(BenchNvmeTest, what_cannot_be_measured_is_refused_and_leaves_nothing) {
    BenchNvmeCommand absent = command();
    absent.paths.push_back(folder_.path("absent"));
    const auto missing = bench_nvme(absent, context_);
    ASSERT_FALSE(missing.ok());
    EXPECT_THAT(missing.error().text(), HasSubstr(folder_.path("absent")));

    BenchNvmeCommand huge = command();
    huge.size_bytes = uint64_t{1} << 60;
    huge.block_bytes = uint64_t{1} << 50;
    const auto too_large = bench_nvme(huge, context_);
    ASSERT_FALSE(too_large.ok());
    EXPECT_THAT(too_large.error().text(), HasSubstr("lower --depth or --block"));

    BenchNvmeCommand full = command();
    full.block_bytes = 1024 * mib;
    full.depth = 1;
    full.size_bytes = uint64_t{1} << 48;
    const auto no_room = bench_nvme(full, context_);
    ASSERT_FALSE(no_room.ok());
    EXPECT_EQ(no_room.error().code, offload::ErrorCode::does_not_fit);
    EXPECT_THAT(no_room.error().text(), HasSubstr("are free there"));
    EXPECT_TRUE(is_clean());
}

}  // namespace
}  // namespace headrace::engine
