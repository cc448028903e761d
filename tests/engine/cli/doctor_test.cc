// Goal: what is in the way is said with its remedy, what is well is said shortly.
// Method: machines made up, and this machine's software asked for real.
#include "engine/cli/doctor.h"

#include <gmock/gmock.h>

#include "nvme/file_system.h"
#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = DoctorRow::State;

Machine good_machine() {
    return {.kernel = "6.1.0",
            .cpu_model = "A Chip",
            .cpu_kind = "Chips-6-17",
            .cpu_count = 8,
            .cpu_features = {"avx2", "fma", "avx512f", "avx512_bf16"},
            .ram_bytes = uint64_t{64} << 30,
            .ram_available_bytes = uint64_t{60} << 30,
            .ram_limit_bytes = {},
            .memlock_limit_bytes = {},
            .transparent_huge_pages = "madvise"};
}

DoctorRow row_named(const std::vector<DoctorRow>& rows, const std::string& name) {
    for (const DoctorRow& row : rows) {
        if (row.name == name) return row;
    }
    ADD_FAILURE() << "no row " << name;
    return {};
}

TEST(DoctorTest, a_good_machine_needs_no_remedy) {
    for (const DoctorRow& row : rows_of(good_machine())) {
        EXPECT_EQ(row.state, State::good) << row.name;
        EXPECT_THAT(row.remedy, IsEmpty()) << row.name;
        EXPECT_FALSE(row.fact.empty()) << row.name;
    }
    EXPECT_EQ(row_named(rows_of(good_machine()), "locked memory").fact, "unlimited");
}

TEST(DoctorTest, what_slows_a_run_is_told_with_its_remedy) {
    Machine machine = good_machine();
    machine.memlock_limit_bytes = uint64_t{64} << 10;
    machine.transparent_huge_pages = "never";
    machine.cpu_features = {};
    machine.ram_limit_bytes = uint64_t{1} << 30;
    machine.ram_used_in_limit_bytes = uint64_t{1} << 29;
    const std::vector<DoctorRow> rows = rows_of(machine);
    EXPECT_THAT(row_named(rows, "locked memory").remedy, HasSubstr("ulimit -l unlimited"));
    EXPECT_THAT(row_named(rows, "locked memory").fact, HasSubstr("64.0 KiB"));
    EXPECT_THAT(row_named(rows, "huge pages").remedy, HasSubstr("echo madvise"));
    EXPECT_EQ(row_named(rows, "processor").state, State::slower);
    EXPECT_THAT(row_named(rows, "memory").fact,
                HasSubstr("512 MiB free (limited to 1.00 GiB by a memory cgroup)"));
}

TEST(DoctorTest, drives_are_looked_at) {
    const TestFolder folder;
    const auto rows = rows_of_drives({folder.path(""), folder.path("absent"), "/dev/shm"});
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_THAT(rows[0].fact, HasSubstr(" free"));
    EXPECT_EQ(rows[1].state, State::missing);
    EXPECT_THAT(rows[1].fact, HasSubstr("is not there"));
    EXPECT_EQ(rows[2].state, State::slower);
    EXPECT_THAT(rows[2].fact, HasSubstr("tmpfs"));
    EXPECT_THAT(rows[2].fact, HasSubstr("in memory"));
    EXPECT_THAT(rows[2].remedy, HasSubstr("a folder on a drive"));
}

TEST(DoctorTest, folders_on_one_drive_are_told) {
    const TestFolder folder;
    if (nvme::drives_of(folder.path("")).empty()) GTEST_SKIP() << "drives are not told here";
    const auto rows = rows_of_drives({folder.path(""), folder.path("")});
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_THAT(rows[1].fact, HasSubstr("as is " + folder.path("")));
    EXPECT_THAT(rows[1].remedy, HasSubstr("one folder per drive"));
}

TEST(DoctorTest, software_is_asked_and_its_absence_told) {
    const auto rows =
        rows_of_software({.python = "/nowhere/python", .scripts_dir = "s", .hub_cache = {}});
    EXPECT_EQ(row_named(rows, "python").state, State::missing);
    EXPECT_THAT(row_named(rows, "python").remedy, HasSubstr("./scripts/setup"));
    EXPECT_FALSE(row_named(rows, "io_uring").fact.empty());
    EXPECT_FALSE(row_named(rows, "cuda").fact.empty());
    const std::string table = table_of(rows);
    EXPECT_THAT(table, HasSubstr("python         missing  /nowhere/python does not run\n"));
    EXPECT_THAT(table, HasSubstr("-> text and chats cannot be prepared"));
}

}  // namespace
}  // namespace headrace::engine
