// Goal: chores run one after the other, in order, and what runs is known. Method: chores that wait
// for the test.
#include "nvme/chores.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>

#include "nvme/clock.h"

namespace headrace::nvme {
namespace {

TEST(Chores, RunInOrderAndAllBeforeTheEnd) {
    std::string order;
    {
        Chores chores;
        for (const char name : {'a', 'b', 'c', 'd'}) {
            chores.add(ChoreKind::record, [&order, name] { order += name; });
        }
    }
    EXPECT_EQ(order, "abcd");
}

TEST(Chores, WhatRunsIsKnownAndSyncsAreTimed) {
    Chores chores;
    std::promise<void> begun;
    std::promise<void> may_end;
    const uint64_t before_ns = now_ns();
    EXPECT_FALSE(chores.running().has_value());
    chores.add(ChoreKind::sync, [&] {
        begun.set_value();
        may_end.get_future().wait();
    });
    chores.add(ChoreKind::seal, [] {});
    begun.get_future().wait();
    const std::optional<RunningChore> running = chores.running();
    ASSERT_TRUE(running.has_value());
    EXPECT_EQ(running->kind, ChoreKind::sync);
    EXPECT_GE(running->started_ns, before_ns);
    EXPECT_LE(running->started_ns, now_ns());
    EXPECT_EQ(chores.sync_latency().count(), 0u) << "not before it ended";
    may_end.set_value();
    chores.drain();
    EXPECT_FALSE(chores.running().has_value());
    EXPECT_EQ(chores.sync_latency().count(), 1u) << "the seal is not one";
    EXPECT_GT(chores.sync_latency().max_ns(), 0u);
}

}  // namespace
}  // namespace headrace::nvme
