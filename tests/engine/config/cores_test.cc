// Goal: a process that is bound to fewer processors computes on fewer cores, and the tightest limit
// of its cgroups is found. Method: binding this one to a single processor and back; machines made
// of files, of both generations of cgroups.
#include "engine/config/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>

#include "tests/engine/data/files.h"

namespace headrace::engine {
namespace {

TEST(Cores, BindingCounts) {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    const int64_t core_count = usable_core_count();
    EXPECT_GE(core_count, 1);
    EXPECT_LE(core_count, CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(usable_core_count(), 1);
    ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
    EXPECT_EQ(usable_core_count(), core_count);
}

TEST(Cores, TheTightestLimitFromTheCgroupToTheRootCounts) {
    const TestFolder folder;
    const auto give = [&](const std::string& name, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(folder.path(name)).parent_path());
        folder.write(name, text);
    };
    EXPECT_FALSE(granted_cores(folder.path("")).has_value());
    give("proc/self/cgroup", "0::/user/job\n");
    give("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    EXPECT_FALSE(granted_cores(folder.path("")).has_value());
    give("sys/fs/cgroup/user/cpu.max", "250000 100000\n");
    EXPECT_EQ(granted_cores(folder.path("")), 2.5);
    give("sys/fs/cgroup/user/job/cpu.max", "50000 100000\n");
    EXPECT_EQ(granted_cores(folder.path("")), 0.5);
    // Version 1; the container sees its cgroup as the root.
    give("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:cpuset:/\n");
    give("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    give("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    give("sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1\n");
    EXPECT_FALSE(granted_cores(folder.path("")).has_value());
    give("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
    EXPECT_EQ(granted_cores(folder.path("")), 1.5);
}

}  // namespace
}  // namespace headrace::engine
