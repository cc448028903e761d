// Goal: the twin in memory keeps the contract of a Store; the engine's tests rest on it. Method:
// small places, every clause once. (The full suite over all stores is in tests/nvme.)
#include "offload/memory_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "offload/units.h"

namespace headrace::offload {
namespace {

std::vector<PlaceSpec> two_places() {
    return {{.name = "one", .size_bytes = 2 * page_bytes, .copies = offload::Copies::scratch},
            {.name = "two", .size_bytes = 2 * page_bytes, .copies = offload::Copies::two}};
}

std::vector<std::byte> filled(uint64_t size_bytes, uint8_t value) {
    return std::vector<std::byte>(size_bytes, std::byte{value});
}

TEST(MemoryStore, ReadsZerosUntilItIsWritten) {
    MemoryStore store(two_places());
    std::vector<std::byte> target = filled(2 * page_bytes, 9);
    ASSERT_TRUE(transfer_and_wait(store, Direction::read, 0, target).ok());
    EXPECT_EQ(target, filled(2 * page_bytes, 0));
    EXPECT_EQ(store.places(), two_places());
    EXPECT_TRUE(sync_and_wait(store).ok());
}

TEST(MemoryStore, KeepsPlacesApartAndReadsPrefixes) {
    MemoryStore store(two_places());
    for (PlaceId place = 0; place < 2; place++) {
        std::vector<std::byte> source = filled(2 * page_bytes, static_cast<uint8_t>(place + 1));
        ASSERT_TRUE(transfer_and_wait(store, Direction::write, place, source).ok());
    }
    for (PlaceId place = 0; place < 2; place++) {
        std::vector<std::byte> target = filled(page_bytes, 9);
        ASSERT_TRUE(transfer_and_wait(store, Direction::read, place, target).ok());
        EXPECT_EQ(target, filled(page_bytes, static_cast<uint8_t>(place + 1)));
    }
}

TEST(MemoryStore, APrefixWriteKeepsOneCopyAndClearsTheRestOfTwo) {
    MemoryStore store(two_places());
    for (PlaceId place = 0; place < 2; place++) {
        std::vector<std::byte> whole = filled(2 * page_bytes, 1);
        std::vector<std::byte> prefix = filled(page_bytes, 2);
        std::vector<std::byte> target = filled(2 * page_bytes, 9);
        ASSERT_TRUE(transfer_and_wait(store, Direction::write, place, whole).ok());
        ASSERT_TRUE(transfer_and_wait(store, Direction::write, place, prefix).ok());
        ASSERT_TRUE(transfer_and_wait(store, Direction::read, place, target).ok());
        EXPECT_TRUE(std::ranges::equal(std::span(target).first(page_bytes), prefix));
        EXPECT_EQ(target.back(), std::byte{static_cast<uint8_t>(place == 0 ? 1 : 0)});
    }
}

TEST(MemoryStoreDeathTest, ABadTransferIsABug) {
    MemoryStore store(two_places());
    std::vector<std::byte> memory = filled(3 * page_bytes, 0);
    EXPECT_DEATH(store.start({Direction::read, 2, std::span(memory).first(page_bytes), nullptr}),
                 "CHECK failed");
    EXPECT_DEATH(store.start({Direction::read, 0, memory, nullptr}), "CHECK failed");
}

}  // namespace
}  // namespace headrace::offload
