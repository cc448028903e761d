// Goal: the faulty store does exactly the harm it was asked for, and the same harm for the same
// seed. Method: faults over a store in memory, whose places must stay what they were.
#include "offload/faulty_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "offload/memory_store.h"
#include "offload/units.h"

namespace headrace::offload {
namespace {

std::vector<PlaceSpec> places_of(uint64_t count) {
    std::vector<PlaceSpec> places;
    for (uint64_t i = 0; i < count; i++) {
        places.push_back({.name = "place " + std::to_string(i), .size_bytes = page_bytes});
    }
    return places;
}

// The order in which `count` writes of different places come back.
std::vector<PlaceId> order_of_completions(const Faults& faults, uint64_t count) {
    MemoryStore below(places_of(count));
    std::vector<std::byte> memory(page_bytes);
    std::vector<PlaceId> order;  // only the delivering thread writes it
    {
        FaultyStore store(below, faults);
        for (PlaceId place = 0; place < count; place++) {
            store.start({Direction::write, place, memory, [&order, place](Status status) {
                             EXPECT_TRUE(status.ok());
                             order.push_back(place);
                         }});
        }
        EXPECT_EQ(store.started_count(), count);
    }
    return order;
}

TEST(FaultyStore, FailsTheChosenTransferAndNoOther) {
    MemoryStore below(places_of(1));
    FaultyStore store(below, {.failing_transfer = 2});
    std::vector<std::byte> memory(page_bytes, std::byte{1});
    ASSERT_TRUE(transfer_and_wait(store, Direction::write, 0, memory).ok());
    ASSERT_TRUE(transfer_and_wait(store, Direction::read, 0, memory).ok());
    std::ranges::fill(memory, std::byte{2});
    const Status failed = transfer_and_wait(store, Direction::write, 0, memory);
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.error().text().find("'place 0'"), std::string::npos);
    EXPECT_NE(failed.error().text().find("transfer 2"), std::string::npos);
    ASSERT_TRUE(transfer_and_wait(store, Direction::read, 0, memory).ok());
    EXPECT_EQ(memory[0], std::byte{1}) << "a failed write must leave the place alone";
}

TEST(FaultyStore, FailsTheChosenSync) {
    MemoryStore below(places_of(1));
    FaultyStore store(below, {.failing_sync = 1});
    EXPECT_TRUE(sync_and_wait(store).ok());
    EXPECT_FALSE(sync_and_wait(store).ok());
    EXPECT_TRUE(sync_and_wait(store).ok());
}

TEST(FaultyStore, WithoutFaultsCompletesInOrder) {
    const std::vector<PlaceId> order = order_of_completions({}, 50);
    ASSERT_EQ(order.size(), 50u);
    EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(FaultyStore, ReordersCompletionsAndLosesNone) {
    uint64_t shuffled_count = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        std::vector<PlaceId> order =
            order_of_completions({.seed = seed, .held_count_max = 8, .yield_count_max = 20}, 50);
        if (!std::ranges::is_sorted(order)) shuffled_count++;
        std::ranges::sort(order);
        ASSERT_EQ(order.size(), 50u);
        for (PlaceId place = 0; place < 50; place++) ASSERT_EQ(order[place], place);
    }
    EXPECT_GT(shuffled_count, 0u);
}

TEST(FaultyStore, DoneMayStartAnotherAndDestructionWaits) {
    MemoryStore below(places_of(2));
    std::vector<std::byte> memory(page_bytes);
    int count = 0;
    std::function<void(Status)> next;  // outlives the store
    {
        FaultyStore store(below, {.seed = 3, .held_count_max = 2, .yield_count_max = 5});
        next = [&](Status status) {
            EXPECT_TRUE(status.ok());
            if (++count < 100) store.start({Direction::read, 0, memory, next});
        };
        store.start({Direction::read, 0, memory, next});
    }
    EXPECT_EQ(count, 100);
}

}  // namespace
}  // namespace headrace::offload
