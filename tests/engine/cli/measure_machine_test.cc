// Goal: what `doctor --probe` writes is a machine file that holds what was measured, with a word on
// each number; `bench gemm` measures every row; both leave nothing behind and can be stopped.
// Method: a tiny model, a tenth of a second, a folder of the test's own; figures are not judged,
// their relations are.
#include "engine/cli/measure_machine.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "engine/cli/bench_gemm.h"
#include "engine/torch/ops/matmul_sizes.h"
#include "offload/units.h"

namespace headrace::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LlamaConfig tiny_shape() {
    LlamaConfig shape;
    shape.hidden_size = 64;
    shape.intermediate_size = 128;
    shape.block_count = 2;
    shape.head_count = 4;
    shape.kv_head_count = 2;
    shape.head_dim = 16;
    shape.vocabulary_size = 1024;
    shape.max_positions = 256;
    return shape;
}

class MeasureMachineTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "headrace-measure-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { fs::remove_all(folder_); }

    MeasureOptions options() const {
        return {.nvme_paths = {folder_.string()},
                .shape = tiny_shape(),
                .shape_name = "a tiny one",
                .token_count = 16,
                .compute_thread_count = 1,
                .update_thread_count = 2,
                .seconds = 0.1,
                .when = "2026-01-02 03:04 UTC"};
    }

    fs::path folder_;
};

TEST_F(MeasureMachineTest, what_it_writes_is_the_machine_that_it_measured) {
    const auto measured = measure_machine(options());
    ASSERT_TRUE(measured.ok()) << measured.error().text();
    EXPECT_TRUE(fs::is_empty(folder_)) << "what was written to measure is removed";
    const std::string path = (folder_ / "cache" / "machine.yaml").string();
    ASSERT_TRUE(write_machine(*measured, path).ok());
    const auto read = load_machine(path);
    ASSERT_TRUE(read.ok()) << read.error().text();
    const offload::Machine& was = measured->file.machine;
    const offload::Machine& is = read->machine;
    const auto expect_near = [](double a, double b) { EXPECT_NEAR(a / b, 1, 1e-5); };
    expect_near(is.gpu_flops, was.gpu_flops);
    expect_near(is.gpu_memory_bytes_per_s, was.gpu_memory_bytes_per_s);
    expect_near(is.launch_s, was.launch_s);
    expect_near(is.link.h2d_bytes_per_s, was.link.h2d_bytes_per_s);
    expect_near(is.link.d2h_bytes_per_s, was.link.d2h_bytes_per_s);
    expect_near(is.link.both_ways, was.link.both_ways);
    expect_near(is.drive.read_bytes_per_s, was.drive.read_bytes_per_s);
    expect_near(is.drive.write_bytes_per_s, was.drive.write_bytes_per_s);
    expect_near(is.drive.flush_s, was.drive.flush_s);
    expect_near(is.drive.both_ways, was.drive.both_ways);
    expect_near(is.update_parameters_per_s, was.update_parameters_per_s);
    expect_near(is.memory_bytes_per_s, was.memory_bytes_per_s);
    EXPECT_EQ(is.update_cores, std::min(2.0, is.core_count));
    EXPECT_EQ(is.compute_cores, 1);
    EXPECT_EQ(is.copy_cores, 1);
    EXPECT_EQ(read->ceilings, measured->file.ceilings);
    EXPECT_EQ(read->drive_count, 1u);
    EXPECT_GE(was.memory_bytes_per_s, 2 * was.link.h2d_bytes_per_s);
}

// A line for each number, and for each what it comes from.
TEST_F(MeasureMachineTest, every_number_has_its_story) {
    const auto measured = measure_machine(options());
    ASSERT_TRUE(measured.ok()) << measured.error().text();
    std::istringstream lines(yaml_of(*measured));
    int number_count = 0;
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("  ")) continue;
        EXPECT_THAT(line, HasSubstr(" # "));
        ++number_count;
    }
    const bool has_bf16 = matmul_path(offload::Dtype::bf16) == MatmulPath::native;
    EXPECT_EQ(number_count, has_bf16 ? 23 : 22);
    EXPECT_THAT(yaml_of(*measured), HasSubstr("2026-01-02 03:04 UTC"));
    EXPECT_THAT(yaml_of(*measured), HasSubstr("a consumer drive falls later"));
}

TEST_F(MeasureMachineTest, a_machine_without_a_drive_has_no_such_section) {
    MeasureOptions without = options();
    without.nvme_paths.clear();
    const auto measured = measure_machine(without);
    ASSERT_TRUE(measured.ok()) << measured.error().text();
    EXPECT_EQ(yaml_of(*measured).find("drive:"), std::string::npos);
    EXPECT_TRUE(parse_machine(yaml_of(*measured), "written").ok());
}

TEST_F(MeasureMachineTest, a_folder_that_is_missing_and_a_stop_are_errors_and_leave_nothing) {
    MeasureOptions missing = options();
    missing.nvme_paths = {(folder_ / "no").string()};
    const auto refused = measure_machine(missing);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().text(), HasSubstr("no"));
    MeasureOptions stopped = options();
    stopped.should_stop = [] { return true; };
    EXPECT_EQ(measure_machine(stopped).error().code, offload::ErrorCode::stopped);
    EXPECT_TRUE(fs::is_empty(folder_));
    const auto measured = measure_machine(options());
    ASSERT_TRUE(measured.ok());
    std::ofstream(folder_ / "file") << "x";
    const auto status = write_machine(*measured, (folder_ / "file" / "m.yaml").string());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().text(), HasSubstr("cannot write the machine file"));
}

TEST(BenchGemmTest, every_row_is_measured_in_the_operations_of_effort) {
    BenchGemmCommand command;
    command.column_count = 16;
    command.seconds_min = 0;
    for (const offload::Dtype dtype : {offload::Dtype::bf16, offload::Dtype::fp32}) {
        for (const bool tied : {false, true}) {
            command.dtype = dtype;
            LlamaConfig shape = tiny_shape();
            shape.tied = tied;
            const auto bench = bench_gemm(command, shape, {.free_bytes = offload::gib});
            ASSERT_TRUE(bench.ok()) << bench.error().text();
            std::vector<std::string> names;
            double slowest = 1e9;
            double fastest = 0;
            for (const BenchRow& row : bench->rows) {
                names.push_back(row.name);
                EXPECT_EQ(row.unit, "GFLOP/s");
                EXPECT_GT(row.achieved, 0);
                EXPECT_EQ(row.against, "square product");
                if (row.name.starts_with("block") || row.name == "head") {
                    slowest = std::min(slowest, row.achieved);
                    fastest = std::max(fastest, row.achieved);
                }
            }
            EXPECT_THAT(names, ElementsAre("block forward", "block backward, recomputed",
                                           "block backward, kept", "head", "square product",
                                           "a step, recomputed"));
            EXPECT_GE(bench->step_flops / 1e9, slowest);
            EXPECT_LE(bench->step_flops / 1e9, fastest);
            EXPECT_GT(bench->reduce_bytes_per_s, 0);
        }
    }
}

TEST(BenchGemmTest, what_does_not_fit_is_refused_with_the_numbers) {
    const auto bench = bench_gemm({}, tiny_shape(), {.free_bytes = offload::kib});
    ASSERT_FALSE(bench.ok());
    EXPECT_EQ(bench.error().code, offload::ErrorCode::does_not_fit);
    EXPECT_THAT(bench.error().text(), HasSubstr("1 x 512 tokens"));
}

}  // namespace
}  // namespace headrace::engine
