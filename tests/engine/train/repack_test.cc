// Goal: repacking moves every element of weights, moments and lo halves, and changes none.
// Method: stores in memory cut by all pairs of part sizes; values that tell where they belong; back
// and forth again must give the same bytes.
#include "engine/train/repack.h"

#include <gtest/gtest.h>

#include "cpu_adam/state.h"
#include "offload/faulty_store.h"
#include "offload/memory_store.h"
#include "offload/units.h"

namespace headrace::engine {
namespace {

using offload::Direction;
using offload::Dtype;
using offload::Layout;
using offload::MemoryStore;

constexpr uint64_t plenty = offload::gib;

Layout layout_of_blocks(uint64_t part_blocks) {
    const auto tensor = [](const char* name, int64_t blocks) {
        return offload::TensorSpec{
            .name = name, .shape = {blocks * static_cast<int64_t>(offload::block_elements)}};
    };
    return offload::make_layout({{"embedding", {tensor("e", 5)}, {}},
                                 {"layers.0", {tensor("a", 3), tensor("b", 4)}, {}},
                                 {"head", {tensor("h", 1)}, {}}},
                                part_blocks * offload::block_elements)
        .value();
}

std::vector<offload::PlaceSpec> places_of(const Layout& layout, Dtype dtype) {
    std::vector<offload::PlaceSpec> places;
    for (const offload::Part& part : layout.parts) {
        places.push_back({"hi", bytes_of(dtype, part.element_count), 2});
    }
    for (const offload::Part& part : layout.parts) {
        places.push_back({"opt", cpu_adam::opt_bytes(dtype, part.element_count), 2});
    }
    return places;
}

// A value for every element of every array, of its layer and its place in the layer's run.
float value_at(uint32_t layer, uint64_t element, int array) {
    return static_cast<float>(element) + 0.25f * static_cast<float>(array) +
           100'000.0f * static_cast<float>(layer);
}

struct Filled {
    std::vector<std::vector<std::byte>> places;
};

Filled bytes_of_cut(const Layout& layout, Dtype dtype) {
    Filled filled;
    for (const offload::PlaceSpec& place : places_of(layout, dtype)) {
        filled.places.emplace_back(place.size_bytes);
    }
    for (uint32_t number = 0; number < layout.parts.size(); ++number) {
        const offload::Part& part = layout.parts[number];
        std::vector<std::byte>& hi = filled.places[number];
        const cpu_adam::StateView view = cpu_adam::view_state(
            dtype, filled.places[layout.parts.size() + number], part.element_count);
        for (uint64_t i = 0; i < part.element_count; ++i) {
            const uint64_t element = part.first_element + i;
            const auto low = static_cast<uint16_t>(element * 7 + part.layer);
            if (dtype == Dtype::fp32) {
                reinterpret_cast<float*>(hi.data())[i] = value_at(part.layer, element, 0);
            } else {
                reinterpret_cast<uint16_t*>(hi.data())[i] = static_cast<uint16_t>(low + 3);
                view.lo[i] = low;
            }
            view.m[i] = value_at(part.layer, element, 1);
            view.v[i] = value_at(part.layer, element, 2);
        }
    }
    return filled;
}

TEST(Repack, EveryElementComesToItsNewPlace) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
        for (const uint64_t before : {1u, 2u, 3u, 100u}) {
            for (const uint64_t after : {1u, 2u, 4u, 100u}) {
                const Layout source_layout = layout_of_blocks(before);
                const Layout target_layout = layout_of_blocks(after);
                MemoryStore source(places_of(source_layout, dtype));
                MemoryStore target(places_of(target_layout, dtype));
                Filled filled = bytes_of_cut(source_layout, dtype);
                for (uint32_t place = 0; place < filled.places.size(); ++place) {
                    ASSERT_TRUE(
                        transfer_and_wait(source, Direction::write, place, filled.places[place]));
                }
                ASSERT_TRUE(
                    repack({&source, &source_layout}, {&target, &target_layout}, dtype, plenty));
                const Filled expected = bytes_of_cut(target_layout, dtype);
                for (uint32_t place = 0; place < expected.places.size(); ++place) {
                    std::vector<std::byte> found(expected.places[place].size());
                    ASSERT_TRUE(transfer_and_wait(target, Direction::read, place, found));
                    ASSERT_EQ(found, expected.places[place])
                        << "place " << place << ", parts of " << before << " to " << after;
                }
            }
        }
    }
}

TEST(Repack, AFailingStoreIsHeard) {
    const Layout layout = layout_of_blocks(2);
    MemoryStore below(places_of(layout, Dtype::bf16));
    MemoryStore target(places_of(layout, Dtype::bf16));
    offload::FaultyStore source(below, {.failing_transfer = 3});
    EXPECT_FALSE(repack({&source, &layout}, {&target, &layout}, Dtype::bf16, plenty).ok());
}

// The largest parts of both cuts, 5 blocks of 12 bytes an element each (bf16), and one page short.
TEST(Repack, StaysInsideTheBudgetOrSaysHowMuchItWants) {
    const Layout layout = layout_of_blocks(5);
    MemoryStore source(places_of(layout, Dtype::bf16));
    MemoryStore target(places_of(layout, Dtype::bf16));
    const uint64_t needed = 2 * 12 * 5 * offload::block_elements;
    const auto repack_in = [&](uint64_t ram_bytes) {
        return repack({&source, &layout}, {&target, &layout}, Dtype::bf16, ram_bytes);
    };
    EXPECT_TRUE(repack_in(needed).ok());
    const offload::Status refused = repack_in(needed - offload::page_bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, offload::ErrorCode::does_not_fit);
    EXPECT_NE(refused.error().text().find("raise ram_budget"), std::string::npos);
}

}  // namespace
}  // namespace headrace::engine
