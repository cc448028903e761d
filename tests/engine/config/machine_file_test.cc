// Goal: a machine file gives the rates it names, or one error with all its faults; those that come
// with the project can be used. Method: a full file, one change at a time; every file of
// configs/hardware.
#include "engine/config/machine_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "offload/units.h"

namespace headrace::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* whole = R"(name: desk
gpu: {memory: 22GiB, tflops: 150, memory_gb_per_s: 900, launch_us: 5}
link: {h2d_gb_per_s: 25, d2h_gb_per_s: 24, latency_us: 10, both_ways: 1.8}
ram: {memory: 56GiB, gb_per_s: 70}
cpu: {cores: 16, update_cores: 8, update_gparam_per_s: 2.4}
drive: {count: 2, space: 4TB, read_gb_per_s: 13, write_gb_per_s: 3.2, written_in_life: 2400TB}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

std::string fault_of(const std::string& text) {
    const auto file = parse_machine(text, "m.yaml");
    EXPECT_FALSE(file.ok()) << text;
    if (file.ok()) return "";
    EXPECT_EQ(file.error().code, offload::ErrorCode::usage);
    return file.error().text();
}

TEST(MachineFile, GivesTheRatesInBytesAndSeconds) {
    const MachineFile file = parse_machine(whole, "m.yaml").value();
    EXPECT_EQ(file.machine.name, "desk");
    EXPECT_EQ(file.machine.gpu_flops, 150e12);
    EXPECT_DOUBLE_EQ(file.machine.launch_s, 5e-6);
    EXPECT_EQ(file.machine.link.d2h_bytes_per_s, 24e9);
    EXPECT_EQ(file.machine.link.both_ways, 1.8);
    EXPECT_DOUBLE_EQ(file.machine.drive.write_bytes_per_s, 3.2e9);
    EXPECT_DOUBLE_EQ(file.machine.update_parameters_per_s, 2.4e9);
    EXPECT_EQ(file.ceilings.gpu_bytes, 22 * offload::gib);
    EXPECT_EQ(file.ceilings.nvme_bytes, 4'000'000'000'000u);
    EXPECT_EQ(file.drive_count, 2u);
    EXPECT_EQ(file.written_in_life_bytes, 2400e12);
}

// A CPU with arithmetic of bf16 multiplies other dtypes more slowly; a card's one number is for
// all.
TEST(MachineFile, ProductsOfOtherDtypesMayHaveARateOfTheirOwn) {
    using offload::Dtype;
    const MachineFile one = parse_machine(whole, "m.yaml").value();
    const MachineFile two =
        parse_machine(replaced(whole, "tflops: 150", "tflops: 150, fp32_tflops: 60"), "m.yaml")
            .value();
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
        EXPECT_EQ(in_dtype(one, dtype).machine.gpu_flops, 150e12);
    }
    EXPECT_EQ(in_dtype(two, Dtype::bf16).machine.gpu_flops, 150e12);
    EXPECT_EQ(in_dtype(two, Dtype::fp16).machine.gpu_flops, 60e12);
    EXPECT_EQ(in_dtype(two, Dtype::fp32).machine.gpu_flops, 60e12);
    // Said once, it holds: what takes the card's place afterwards keeps its own rate.
    MachineFile replaced_card = in_dtype(two, Dtype::fp32);
    replaced_card.machine.gpu_flops = 99e12;
    EXPECT_EQ(in_dtype(replaced_card, Dtype::fp32).machine.gpu_flops, 99e12);
}

TEST(MachineFile, AMachineWithoutADriveIsOne) {
    const std::string text(whole);
    const MachineFile file = parse_machine(text.substr(0, text.find("drive:")), "m.yaml").value();
    EXPECT_EQ(file.drive_count, 0u);
    EXPECT_EQ(file.ceilings.nvme_bytes, 0u);
}

TEST(MachineFile, OneErrorNamesAllThatIsWrong) {
    std::string text = replaced(whole, "tflops: 150", "tflops: fast");
    text = replaced(text, "memory: 56GiB", "memory: lots");
    text = replaced(text, "cores: 16", "cors: 16");
    text += "fans: {count: 3}\n";
    EXPECT_THAT(fault_of(text),
                AllOf(HasSubstr("m.yaml:2: 'gpu.tflops' must be a number"), HasSubstr("'fast'"),
                      HasSubstr("m.yaml:4: 'ram.memory' must be a size"),
                      HasSubstr("unknown key 'cpu.cors'"), HasSubstr("'cpu.cores' is missing"),
                      HasSubstr("unknown key 'fans'")));
    EXPECT_THAT(fault_of(replaced(whole, "name: desk", "name: desk\nname: chair")),
                HasSubstr("given twice"));
    EXPECT_THAT(fault_of("just words"), Not(HasSubstr("CHECK")));
}

TEST(MachineFile, NumbersThatNoMachineHasAreRefusedWithTheirBounds) {
    for (const char* number :
         {"0", "-1", "1e-300", "1e300", "nan", ".nan", "inf", "-inf", "1e999"}) {
        SCOPED_TRACE(number);
        EXPECT_THAT(fault_of(replaced(whole, "tflops: 150", fmt::format("tflops: {}", number))),
                    AllOf(HasSubstr("m.yaml:2: 'gpu.tflops' must be a number from "),
                          HasSubstr(fmt::format("but is '{}'", number))));
    }
    const auto refused = [](const std::string& from, const std::string& to, const char* why) {
        EXPECT_THAT(fault_of(replaced(whole, from, to)), HasSubstr(why)) << to;
    };
    refused("launch_us: 5", "launch_us: 1e300", "'gpu.launch_us' must be a number from 0 to");
    refused("both_ways: 1.8", "both_ways: 3", "'link.both_ways' must be a number from 1 to 2");
    refused("read_gb_per_s: 13", "read_gb_per_s: 0", "'drive.read_gb_per_s' must be");
    refused("count: 2", "count: 0", "'drive.count' must be a whole number from 1 to");
    refused("count: 2", "count: 1.5", "'drive.count' must be a whole number from 1 to");
    refused("count: 2", "count: 1e10", "'drive.count' must be a whole number from 1 to");
    refused("update_cores: 8", "update_cores: 99", "'cpu.update_cores' (99) are more than");
}

TEST(MachineFile, WhatIsNoFileIsRefused) {
    for (const std::string& path : {testing::TempDir(), std::string("/dev/zero")}) {
        const auto file = load_machine(path);
        ASSERT_FALSE(file.ok());
        EXPECT_EQ(file.error().code, offload::ErrorCode::usage);
        EXPECT_THAT(file.error().text(), AllOf(HasSubstr(path), HasSubstr("not a file")));
    }
}

TEST(MachineFile, AMissingFileNamesThoseBeside) {
    const auto file = load_machine(HEADRACE_CONFIGS "/hardware/rtx9999.yaml");
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.error().text(), AllOf(HasSubstr("rtx9999"), HasSubstr("rtx4090.yaml")));
}

TEST(MachineFile, WhatWasMeasuredOfThisMachineIsFoundWhereItIsWritten) {
    EXPECT_EQ(measured_machine_path("", "a-1-2", 2), "") << "no folder, nothing to find";
    const std::string folder = testing::TempDir() + "measured_machine";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    const std::string path = measured_machine_path(folder, "a-1-2", 2);
    EXPECT_FALSE(load_measured_machine("").value().has_value());
    EXPECT_FALSE(load_measured_machine(path).value().has_value());
    std::ofstream(path) << whole;
    EXPECT_EQ(load_measured_machine(path).value().value().machine.name, "desk");
    EXPECT_TRUE(measured_elsewhere(path).empty());
    for (const std::string& other :
         {measured_machine_path(folder, "a-1-3", 2), measured_machine_path(folder, "a-1-2", 8)}) {
        EXPECT_FALSE(load_measured_machine(other).value()) << "a home that unlike machines share";
        EXPECT_EQ(measured_elsewhere(other),
                  std::vector{std::filesystem::path(path).filename().string()});
    }
    std::ofstream(path) << "half a fi";
    const auto broken = load_measured_machine(path);
    ASSERT_FALSE(broken.ok());
    EXPECT_THAT(broken.error().text(), HasSubstr(path));
}

TEST(MachineFile, ThoseOfTheProjectCanBeUsed) {
    int file_count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(HEADRACE_CONFIGS "/hardware")) {
        const auto file = load_machine(entry.path().string());
        ASSERT_TRUE(file.ok()) << file.error().text();
        EXPECT_EQ(file->machine.name, entry.path().stem().string());
        ++file_count;
    }
    EXPECT_GE(file_count, 5);
}

// Whoever plans for a machine that does not exist yet may not know how large its drives will be.
TEST(MachineFile, DrivesWithoutASpaceAreUnlimited) {
    const std::string text = R"(
name: a
gpu: {memory: 22GiB, tflops: 150, memory_gb_per_s: 900}
link: {h2d_gb_per_s: 25, d2h_gb_per_s: 25}
ram: {memory: 56GiB, gb_per_s: 70}
cpu: {cores: 16, update_cores: 8, update_gparam_per_s: 2.2}
drive: {count: 2, read_gb_per_s: 13, write_gb_per_s: 3.2}
)";
    const auto file = parse_machine(text, "a.yaml");
    ASSERT_TRUE(file.ok()) << file.error().text();
    EXPECT_EQ(file->ceilings.nvme_bytes, unlimited_bytes);
}

}  // namespace
}  // namespace headrace::engine
