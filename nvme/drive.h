// Drive: what a drive can do, as a plan and a striped store need it. Consumer drives write fast
// into a cache of their own until it is full, and then at a quarter of the speed; one step of a 13B
// model fills it. So a drive has two write rates and the bytes between them, and what lasts for
// days counts the second. Values and pure functions of samples; who measures is probe.h. Only
// read_drive_facts looks at the system.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headrace::nvme {

struct Drive {
    double read_bytes_per_s = 0;
    double write_burst_bytes_per_s = 0;
    double write_sustained_bytes_per_s = 0;
    double mixed_bytes_per_s = 0;  // reads and writes together, in the ratio a step has
    // What could be written before the rate fell; where has_fallen is false it never did, and this
    // is as far as was looked: the sustained rate is then the burst's, and a promise of no more.
    uint64_t burst_bytes = 0;
    bool has_fallen = false;
    bool operator==(const Drive&) const = default;
};

// What one step moves per parameter with everything on the drives, fp32 states and bf16 gradients
// (bytes). Read: weight and states for the update (12), the stash (2), the weight once more for
// backward (2). Written: weight and states (12), the stash (2).
inline constexpr uint32_t step_read_bytes_per_parameter = 16;
inline constexpr uint32_t step_write_bytes_per_parameter = 14;

// Bytes per second of reads and writes done in that ratio one after the other; mixing them on a
// drive was measured to cost nothing to 7% of it. CHECKs that both rates are positive.
double step_bytes_per_s(double read_bytes_per_s, double write_bytes_per_s);
double step_bytes_per_s(const Drive& drive);  // with the sustained write rate

// ---- measuring: samples to a Drive --------------------------------------------------------------

// A stretch of uninterrupted writing.
struct WriteSample {
    uint64_t written_before_bytes = 0;  // since the measuring began
    uint64_t size_bytes = 0;
    double seconds = 0;
};

struct DriveSamples {
    std::vector<double> read_bytes_per_s{};
    std::vector<double> mixed_bytes_per_s{};
    std::vector<WriteSample> writes{};  // one after another, ascending
};

// The first sample at the lower rate: from there to the end the median is below two thirds of the
// median before. A dip that passes is no fall. Needs fall_window samples on both sides.
inline constexpr size_t fall_window = 5;
std::optional<size_t> find_fall(std::span<const WriteSample> writes);

// Medians of reads and mixes; burst and sustained are bytes by time before and after the fall, the
// sample it falls in left out of both. CHECKs that there is a write; rates without samples are 0.
Drive fold(const DriveSamples& samples);

// ---- striping -----------------------------------------------------------------------------------

// Blocks per path and cycle (placement.h), in proportion to step_bytes_per_s; rates within 10% of
// each other count as equal, so drives of one kind get {1, 1}. The least sum, at most
// pattern_slots_max, whose weights are within 2% of each other's rates; where none is (many paths,
// or one a hundred times slower), the nearest. CHECKs that every rate is positive.
std::vector<uint32_t> weights_of(const std::vector<Drive>& drives);
std::vector<uint32_t> weights_of_rates(std::vector<double> rates);

// How far weights miss: the largest rate per weight over the least, minus 1.
double mismatch(std::span<const uint32_t> weights, std::span<const double> rates);

// ---- what the system says of a drive ------------------------------------------------------------

// A fact that cannot be read is empty or 0: nothing here is an error.
struct DriveFacts {
    std::string device;              // "nvme0n1p1"; empty: no block device is behind the folder
    std::vector<std::string> disks;  // the whole disks behind it (file_system.h), sorted: "nvme0n1"
    std::string model;               // of the first disk
    std::string serial;
    uint64_t size_bytes = 0;  // of all disks
    bool is_rotational = false;
    std::string write_cache;  // "write back", "write through"

    std::string file_system;  // "ext4"
    std::string file_system_uuid;
    uint64_t file_system_bytes = 0;
    uint64_t free_bytes = 0;

    double fill() const;  // 0 to 1: what is taken of the file system
};

// `root` stands before /proc, /sys and /dev, so that a test can offer a machine of its own.
DriveFacts read_drive_facts(const std::string& folder, const std::string& root = "");

// "ext4 on nvme0n1p1 (Samsung SSD 990 PRO, 1.82 TiB), 35% full, write cache: write back".
std::string describe(const DriveFacts& facts);

}  // namespace headrace::nvme
