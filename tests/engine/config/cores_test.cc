// Goal: a process that is bound to fewer processors computes on fewer cores. Method: binding this
// one to a single processor and back.
#include "engine/config/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

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

}  // namespace
}  // namespace headrace::engine
