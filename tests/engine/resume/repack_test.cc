// Goal: repacking moves every element of weights, moments and lo halves, and changes none.
// Method: stores in memory cut by all pairs of part sizes; values that tell where they belong; back
// and forth again must give the same bytes.
#include "engine/resume/repack.h"

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
using offload::StateFormat;

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

std::vector<offload::PlaceSpec> places_of(const Layout& layout, Dtype dtype,
                                          StateFormat states = StateFormat::fp32) {
    std::vector<offload::PlaceSpec> places;
    for (const offload::Part& part : layout.parts) {
        places.push_back({"hi", bytes_of(dtype, part.element_count), offload::Copies::two});
    }
    for (const offload::Part& part : layout.parts) {
        places.push_back(
            {"opt", offload::opt_bytes(dtype, states, part.element_count), offload::Copies::two});
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
        const cpu_adam::StateView view =
            cpu_adam::view_state(dtype, offload::StateFormat::fp32,
                                 filled.places[layout.parts.size() + number], part.element_count);
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

void fill(MemoryStore& store, const Layout& layout, Dtype dtype) {
    Filled filled = bytes_of_cut(layout, dtype);
    for (uint32_t place = 0; place < filled.places.size(); ++place) {
        ASSERT_TRUE(transfer_and_wait(store, Direction::write, place, filled.places[place]));
    }
}

TEST(Repack, EveryElementComesToItsNewPlace) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
        for (const uint64_t before : {1u, 2u, 3u, 100u}) {
            for (const uint64_t after : {1u, 2u, 4u, 100u}) {
                const Layout source_layout = layout_of_blocks(before);
                const Layout target_layout = layout_of_blocks(after);
                MemoryStore source(places_of(source_layout, dtype));
                MemoryStore target(places_of(target_layout, dtype));
                fill(source, source_layout, dtype);
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

// All places of a kind of a store, one after another: hi, or opt as its states are kept.
struct Found {
    std::vector<std::byte> hi, opt;
    bool operator==(const Found&) const = default;
};
Found read_all(MemoryStore& store, const Layout& layout) {
    Found found;
    for (uint32_t place = 0; place < store.places().size(); ++place) {
        std::vector<std::byte> bytes(store.places()[place].size_bytes);
        EXPECT_TRUE(transfer_and_wait(store, Direction::read, place, bytes));
        std::vector<std::byte>& all = place < layout.parts.size() ? found.hi : found.opt;
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return found;
}

// Another format moves no bit of a weight or its lower half, nor one of a moment where the way
// there and back is exact: bf16 and int8 through fp32.
TEST(Repack, AnotherFormatKeepsEveryWeightAndItsMaster) {
    const Layout layout = layout_of_blocks(100);
    const uint64_t layer_elements = layout.parts[0].element_count;
    for (const StateFormat lossy : {StateFormat::bf16, StateFormat::int8}) {
        MemoryStore exact(places_of(layout, Dtype::bf16));
        fill(exact, layout, Dtype::bf16);
        MemoryStore there(places_of(layout, Dtype::bf16, lossy));
        MemoryStore back(places_of(layout, Dtype::bf16));
        MemoryStore again(places_of(layout, Dtype::bf16, lossy));
        const CutStore in_fp32{&exact, &layout}, in_lossy{&there, &layout, lossy};
        const CutStore in_fp32_again{&back, &layout}, in_lossy_again{&again, &layout, lossy};
        ASSERT_TRUE(repack(in_fp32, in_lossy, Dtype::bf16, plenty));
        ASSERT_TRUE(repack(in_lossy, in_fp32_again, Dtype::bf16, plenty));
        ASSERT_TRUE(repack(in_fp32_again, in_lossy_again, Dtype::bf16, plenty));
        const Found before = read_all(exact, layout);
        Found lossy_bytes = read_all(there, layout);
        Found after = read_all(back, layout);
        EXPECT_EQ(after.hi, before.hi);
        EXPECT_EQ(lossy_bytes.hi, before.hi);
        if (lossy == StateFormat::bf16) {
            EXPECT_EQ(read_all(again, layout), lossy_bytes);
        }
        Found source = before;
        const auto first = [&](Found& found, StateFormat states) {
            return cpu_adam::view_state(Dtype::bf16, states, found.opt, layer_elements);
        };
        const cpu_adam::StateView was = first(source, StateFormat::fp32);
        const cpu_adam::StateView is = first(after, StateFormat::fp32);
        EXPECT_TRUE(std::ranges::equal(is.lo, was.lo));
        EXPECT_TRUE(std::ranges::equal(first(lossy_bytes, lossy).lo, was.lo));
        for (uint64_t i = 0; i < layer_elements; ++i) {
            ASSERT_NEAR(is.m[i], was.m[i], 0.01f * was.m[layer_elements - 1]) << i;
        }
        EXPECT_FALSE(std::ranges::equal(is.m, was.m)) << "a lossy format loses something";
    }
}

// Another format and other parts at once are the two one after the other.
TEST(Repack, AnotherFormatAndOtherPartsAtOnce) {
    const Layout large = layout_of_blocks(100);
    const Layout small = layout_of_blocks(2);
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
        for (const StateFormat states : {StateFormat::bf16, StateFormat::int8}) {
            MemoryStore source(places_of(large, dtype));
            fill(source, large, dtype);
            MemoryStore at_once(places_of(small, dtype, states));
            MemoryStore converted(places_of(large, dtype, states));
            MemoryStore in_turn(places_of(small, dtype, states));
            ASSERT_TRUE(repack({&source, &large}, {&at_once, &small, states}, dtype, plenty));
            ASSERT_TRUE(repack({&source, &large}, {&converted, &large, states}, dtype, plenty));
            ASSERT_TRUE(
                repack({&converted, &large, states}, {&in_turn, &small, states}, dtype, plenty));
            EXPECT_EQ(read_all(at_once, small), read_all(in_turn, small));
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
