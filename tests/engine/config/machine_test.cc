// Goal: what the machine has is read right, most of all the limit that a container sets.
// Method: machines made of files, of both generations of cgroups; and this machine, loosely.
#include "engine/config/machine.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MachineTest : public ::testing::Test {
  protected:
    void give(const std::string& path, const std::string& text) {
        fs::create_directories(fs::path(folder_.path(path)).parent_path());
        folder_.write(path, text);
    }
    Machine read() const { return read_machine(folder_.path("")); }
    void give_memory() {
        give("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n");
    }
    TestFolder folder_;
};

TEST_F(MachineTest, processor_and_memory_are_read) {
    give_memory();
    give("proc/cpuinfo",
         "processor\t: 0\nvendor_id\t: Chips\ncpu family\t: 6\nmodel\t\t: 17\n"
         "model name\t: A Chip: fast\nflags\t\t: fpu avx2 avx512f_not fma\n\n"
         "processor\t: 1\nmodel name\t: A Chip: fast\nflags\t\t: fpu avx2 fma\n");
    give("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    give("proc/sys/vm/nr_hugepages", "12\n");
    const Machine machine = read();
    EXPECT_EQ(machine.cpu_count, 2);
    EXPECT_EQ(machine.cpu_model, "A Chip: fast");
    EXPECT_EQ(machine.cpu_kind, "Chips-6-17");
    EXPECT_THAT(machine.cpu_features, ElementsAre("avx2", "fma"));
    EXPECT_EQ(machine.ram_bytes, 1000u * 1024);
    EXPECT_EQ(machine.ram_free_bytes(), 800u * 1024);
    EXPECT_EQ(machine.transparent_huge_pages, "madvise");
    EXPECT_EQ(machine.reserved_huge_page_count, 12);
    EXPECT_FALSE(machine.ram_limit_bytes.has_value());
}

TEST_F(MachineTest, the_tightest_limit_up_the_tree_counts_version_2) {
    give_memory();
    give("proc/self/cgroup", "0::/user/job\n");
    give("sys/fs/cgroup/user/job/memory.max", "max\n");
    give("sys/fs/cgroup/user/memory.max", "500000\n");
    give("sys/fs/cgroup/user/memory.current", "100000\n");
    EXPECT_EQ(read().ram_limit_bytes, 500000u);
    EXPECT_EQ(read().ram_free_bytes(), 400000u);
    give("sys/fs/cgroup/user/job/memory.max", "300000\n");
    give("sys/fs/cgroup/user/job/memory.current", "350000\n");
    EXPECT_EQ(read().ram_limit_bytes, 300000u);
    EXPECT_EQ(read().ram_free_bytes(), 0u);
    give("sys/fs/cgroup/user/job/memory.stat",
         "anon 9\nfile 260000\ninactive_file 200000\nactive_file 50000\n");
    EXPECT_EQ(read().ram_free_bytes(), 200000u) << "file cache is not held";
}

TEST_F(MachineTest, a_container_that_sees_its_cgroup_as_the_root_version_1) {
    give_memory();
    give("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n");
    give("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_FALSE(read().ram_limit_bytes.has_value());
    give("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
    EXPECT_EQ(read().ram_limit_bytes, 700000u);
    EXPECT_EQ(read().ram_free_bytes(), 700000u);
    give("sys/fs/cgroup/memory/memory.usage_in_bytes", "650000\n");
    give("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 640000\n");
    EXPECT_EQ(read().ram_free_bytes(), 690000u);
}

TEST_F(MachineTest, who_may_lock_memory_is_not_bound_by_its_limit) {
    give("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
    EXPECT_FALSE(read().memlock_limit_bytes.has_value());
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    give("proc/self/status", "Name:\tx\nCapEff:\t0000000000003fff\n");
    EXPECT_EQ(read().memlock_limit_bytes.has_value(), limit.rlim_cur != RLIM_INFINITY);
}

TEST_F(MachineTest, a_machine_that_says_nothing_is_no_error) {
    const Machine machine = read();
    EXPECT_EQ(machine.cpu_count, 0);
    EXPECT_EQ(machine.ram_free_bytes(), 0u);
    EXPECT_THAT(machine.transparent_huge_pages, IsEmpty());
}

TEST_F(MachineTest, this_machine_has_processors_and_memory) {
    const Machine machine = read_machine();
    EXPECT_GE(machine.cpu_count, 1);
    EXPECT_GT(machine.ram_bytes, uint64_t{64} << 20);
    EXPECT_LE(machine.ram_free_bytes(), machine.ram_bytes);
    EXPECT_FALSE(machine.kernel.empty());
    ASSERT_TRUE(read_drive_space(folder_.path("")).has_value());
    EXPECT_FALSE(read_drive_space(folder_.path(""))->file_system.empty());
    EXPECT_FALSE(read_drive_space(folder_.path("absent")).has_value());
}

}  // namespace
}  // namespace headrace::engine
