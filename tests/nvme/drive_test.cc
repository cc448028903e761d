// Goal: samples become the drive they came from, weights follow rates, and a drive is known by what
// the system says of it.
// Method: synthetic write curves with and without a fall, random rates, and a machine made of
// files.
#include "nvme/drive.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <numeric>
#include <random>

#include "nvme/placement.h"
#include "offload/units.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double gb_per_s = 1e9;

// Quarter seconds of writing at a rate that depends on what was written before.
template <typename RateAt>
std::vector<WriteSample> curve_of(RateAt rate_at, uint64_t total_bytes) {
    std::vector<WriteSample> writes;
    uint64_t before = 0;
    while (before < total_bytes) {
        const auto size_bytes = static_cast<uint64_t>(rate_at(before) * 0.25);
        writes.push_back(
            {.written_before_bytes = before, .size_bytes = size_bytes, .seconds = 0.25});
        before += size_bytes;
    }
    return writes;
}

Drive fold_writes(std::vector<WriteSample> writes) {
    return fold({.read_bytes_per_s = {}, .mixed_bytes_per_s = {}, .writes = std::move(writes)});
}

TEST(FoldTest, a_cache_that_fills_gives_two_rates_and_the_bytes_between) {
    constexpr uint64_t cache_bytes = 100'000'000'000;
    for (const double noise : {0.0, 0.15}) {
        std::mt19937_64 random(1);
        std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
        const Drive drive = fold_writes(curve_of(
            [&](uint64_t before) {
                return (before < cache_bytes ? 6 : 1.5) * gb_per_s * factor(random);
            },
            130'000'000'000));
        EXPECT_TRUE(drive.has_fallen);
        EXPECT_NEAR(static_cast<double>(drive.burst_bytes), 1e11, 3e9) << noise;
        EXPECT_NEAR(drive.write_burst_bytes_per_s, 6 * gb_per_s, 0.2 * gb_per_s) << noise;
        EXPECT_NEAR(drive.write_sustained_bytes_per_s, 1.5 * gb_per_s, 0.05 * gb_per_s) << noise;
    }
}

TEST(FoldTest, a_drive_that_does_not_fall_promises_what_was_looked_at) {
    const auto writes = curve_of([](uint64_t) { return 2 * gb_per_s; }, 40'000'000'000);
    const Drive drive = fold_writes(writes);
    EXPECT_FALSE(drive.has_fallen);
    EXPECT_EQ(drive.burst_bytes, 40'000'000'000u);
    EXPECT_DOUBLE_EQ(drive.write_burst_bytes_per_s, 2 * gb_per_s);
    EXPECT_DOUBLE_EQ(drive.write_sustained_bytes_per_s, drive.write_burst_bytes_per_s);
}

TEST(FoldTest, a_dip_that_passes_and_a_small_loss_are_no_fall) {
    const auto dip = curve_of(
        [](uint64_t before) {
            return (before > 20'000'000'000 && before < 24'000'000'000 ? 1 : 4) * gb_per_s;
        },
        80'000'000'000);
    EXPECT_FALSE(find_fall(dip).has_value());
    EXPECT_FALSE(fold_writes(dip).has_fallen);
    const auto small =
        curve_of([](uint64_t before) { return (before < 20'000'000'000 ? 4 : 3) * gb_per_s; },
                 60'000'000'000);
    EXPECT_FALSE(find_fall(small).has_value());
    EXPECT_FALSE(find_fall(std::span(dip).first(9)).has_value()) << "too few to tell";
}

TEST(FoldTest, a_fall_is_found_as_soon_as_it_has_lasted) {
    auto writes = curve_of([](uint64_t) { return 4 * gb_per_s; }, 20'000'000'000);
    const size_t before = writes.size();
    for (size_t i = 0; i < fall_window; i++) {
        EXPECT_FALSE(find_fall(writes).has_value()) << i;
        const WriteSample& last = writes.back();
        writes.push_back({.written_before_bytes = last.written_before_bytes + last.size_bytes,
                          .size_bytes = 250'000'000,
                          .seconds = 0.25});
    }
    EXPECT_EQ(find_fall(writes), before);
}

TEST(FoldTest, reads_and_mixes_are_medians) {
    const Drive drive = fold({.read_bytes_per_s = {3, 9, 1},
                              .mixed_bytes_per_s = {4, 2},
                              .writes = {{.size_bytes = 10, .seconds = 2}}});
    EXPECT_EQ(drive.read_bytes_per_s, 3);
    EXPECT_EQ(drive.mixed_bytes_per_s, 3);
    EXPECT_EQ(drive.write_sustained_bytes_per_s, 5);
}

TEST(StepRateTest, counts_reads_and_writes_as_a_step_has_them) {
    EXPECT_DOUBLE_EQ(step_bytes_per_s(2, 2), 2);
    EXPECT_DOUBLE_EQ(step_bytes_per_s(8, 3.5), 30 / (2.0 + 4.0));
    EXPECT_DOUBLE_EQ(step_bytes_per_s(Drive{.read_bytes_per_s = 8,
                                            .write_burst_bytes_per_s = 100,
                                            .write_sustained_bytes_per_s = 3.5}),
                     5);
}

TEST(WeightsTest, follow_the_rates) {
    EXPECT_THAT(weights_of_rates({5}), ElementsAre(1));
    EXPECT_THAT(weights_of_rates({3, 1}), ElementsAre(3, 1));
    EXPECT_THAT(weights_of_rates({6.05, 2}), ElementsAre(3, 1)) << "within 2%";
    EXPECT_THAT(weights_of_rates({1, 2, 3}), ElementsAre(1, 2, 3));
    EXPECT_THAT(weights_of_rates({3.5, 7, 7.2}), ElementsAre(1, 2, 2)) << "about";
}

TEST(WeightsTest, drives_of_one_kind_are_equal) {
    EXPECT_THAT(weights_of_rates({7.0, 7.4, 6.8, 7.1}), ElementsAre(1, 1, 1, 1));
    const Drive drive{.read_bytes_per_s = 7, .write_sustained_bytes_per_s = 2};
    Drive other = drive;
    other.write_sustained_bytes_per_s = 2.1;
    EXPECT_THAT(weights_of({drive, other}), ElementsAre(1, 1));
    other.write_sustained_bytes_per_s = 1;  // 30/(16/7+14/2) = 3.23 against 30/(16/7+14) = 1.84
    EXPECT_THAT(weights_of({drive, other}), ElementsAre(7, 4));
}

TEST(WeightsTest, are_within_two_percent_of_up_to_four_random_drives) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> rate(1, 8);
    for (int turn = 0; turn < 2000; turn++) {
        std::vector<double> rates(1 + static_cast<size_t>(turn) % 4);
        for (double& value : rates) value = rate(random);
        const std::vector<uint32_t> weights = weights_of_rates(rates);
        const auto sum = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
        ASSERT_LE(sum, pattern_slots_max);
        // Rates within 10% of each other were taken as one: they may miss by that much.
        bool is_apart = true;
        for (size_t a = 0; a < rates.size(); a++) {
            for (size_t b = 0; b < rates.size(); b++) {
                is_apart &=
                    a == b || std::max(rates[a], rates[b]) > 1.1 * std::min(rates[a], rates[b]);
            }
        }
        EXPECT_LT(mismatch(weights, rates), is_apart ? 0.02 : 0.125) << turn;
    }
}

TEST(WeightsTest, the_nearest_where_nothing_fits) {
    EXPECT_THAT(weights_of_rates({1000, 1}), ElementsAre(255, 1));
    std::vector<double> many;
    for (int i = 0; i < 64; i++) many.push_back(1 + i * 0.3);
    const std::vector<uint32_t> weights = weights_of_rates(many);
    EXPECT_EQ(weights.size(), 64u);
    EXPECT_EQ(make_pattern(weights).empty(), false) << "CHECKs the sum";
}

// A machine whose folder lies on a partition, a mapped device or a number of its own.
class DriveFactsTest : public testing::Test {
  protected:
    void SetUp() override {
        struct stat facts {};
        ASSERT_EQ(stat(folder_.path().c_str(), &facts), 0);
        number_ = std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
    }
    void write(const std::string& path, const std::string& text) {
        const std::filesystem::path file = root_.path() + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    void link(const std::string& target, const std::string& path) {
        const std::filesystem::path file = root_.path() + path;
        std::filesystem::create_directories(file.parent_path());
        std::filesystem::create_symlink(root_.path() + target, file);
    }
    void add_disk(const std::string& name, const std::string& model, uint64_t gigabytes) {
        const std::string disk = "/sys/devices/pci/" + name;
        link(disk, "/sys/class/block/" + name);
        write(disk + "/size", std::to_string(gigabytes * 1'000'000'000 / 512) + "\n");
        write(disk + "/device/model", model + "   \n");
        write(disk + "/device/serial", "S" + name + "\n");
        write(disk + "/queue/rotational", "0\n");
        write(disk + "/queue/write_cache", "write back\n");
    }
    void mount(const std::string& type, const std::string& source) {
        write("/proc/self/mountinfo", "20 1 0:5 / /proc rw - proc proc rw\n36 35 " + number_ +
                                          " / /mnt rw,noatime shared:1 - " + type + " " + source +
                                          " rw\n");
    }
    DriveFacts facts() { return read_drive_facts(folder_.path(), root_.path()); }

    TempFolder folder_;
    TempFolder root_;
    std::string number_;
};

TEST_F(DriveFactsTest, a_partition_is_its_disk) {
    add_disk("nvme0n1", "Fast 990 PRO", 2000);
    write("/sys/devices/pci/nvme0n1/nvme0n1p1/partition", "1\n");
    link("/sys/devices/pci/nvme0n1/nvme0n1p1", "/sys/dev/block/" + number_);
    link("/dev/nvme0n1p1", "/dev/disk/by-uuid/5f1c-22");
    mount("ext4", "/dev/nvme0n1p1");
    const DriveFacts facts = this->facts();
    EXPECT_EQ(facts.device, "nvme0n1p1");
    EXPECT_THAT(facts.disks, ElementsAre("nvme0n1"));
    EXPECT_EQ(facts.model, "Fast 990 PRO");
    EXPECT_EQ(facts.serial, "Snvme0n1");
    EXPECT_EQ(facts.size_bytes, 2'000'000'000'000 / 512 * 512);
    EXPECT_EQ(facts.file_system, "ext4");
    EXPECT_EQ(facts.file_system_uuid, "5f1c-22");
    EXPECT_GT(facts.file_system_bytes, 0u);
    EXPECT_GT(facts.fill(), 0.0);
    const std::string text = describe(facts);
    EXPECT_THAT(text, HasSubstr("ext4 on nvme0n1p1 (Fast 990 PRO, 1.82 TiB)"));
    EXPECT_THAT(text, HasSubstr("write cache: write back"));
}

TEST_F(DriveFactsTest, a_mapped_device_is_what_lies_below_it) {
    add_disk("nvme1n1", "B", 100);
    add_disk("nvme0n1", "A", 100);
    for (const char* const disk : {"nvme0n1", "nvme1n1"}) {
        const std::string number = std::string("259:") + disk[4];
        write(std::string("/sys/devices/pci/") + disk + "/dev", number + "\n");
        link(std::string("/sys/devices/pci/") + disk, "/sys/dev/block/" + number);
        link(std::string("/sys/devices/pci/") + disk,
             std::string("/sys/devices/virtual/dm-0/slaves/") + disk);
    }
    link("/sys/devices/virtual/dm-0", "/sys/dev/block/" + number_);
    mount("xfs", "/dev/mapper/fast");
    const DriveFacts facts = this->facts();
    EXPECT_EQ(facts.device, "dm-0");
    EXPECT_THAT(facts.disks, ElementsAre("nvme0n1", "nvme1n1"));
    EXPECT_EQ(facts.model, "A");
    EXPECT_EQ(facts.size_bytes, 200'000'000'000 / 1024 * 1024);
    EXPECT_THAT(describe(facts), HasSubstr("over 2 disks"));
}

TEST_F(DriveFactsTest, a_file_system_with_a_number_of_its_own_is_found_by_its_source) {
    write("/dev/dm-3", "");
    link("/dev/dm-3", "/dev/mapper/fast");
    mount("btrfs", "/dev/mapper/fast");
    EXPECT_EQ(facts().device, "dm-3");
}

TEST_F(DriveFactsTest, what_is_not_known_is_no_error) {
    mount("nfs4", "server:/export");
    const DriveFacts facts = this->facts();
    EXPECT_EQ(facts.file_system, "nfs4");
    EXPECT_THAT(facts.device, IsEmpty());
    EXPECT_THAT(describe(facts), HasSubstr("nfs4, no drive of its own"));
    EXPECT_EQ(read_drive_facts(folder_.path() + "/absent").file_system_bytes, 0u);
}

TEST(DriveFactsOfThisMachineTest, are_consistent) {
    const DriveFacts facts = read_drive_facts(".");
    EXPECT_GT(facts.file_system_bytes, facts.free_bytes);
    EXPECT_EQ(facts.device.empty(), facts.disks.empty());
    EXPECT_EQ(facts.device.empty(), facts.size_bytes == 0);
}

}  // namespace
}  // namespace headrace::nvme
