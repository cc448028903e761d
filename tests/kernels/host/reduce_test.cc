// Goal: the reduce of a part stashes what its accumulators say, and the norm and the first tensor
// that is not finite do not depend on the row, on how the model is cut, or on the order of parts.
// Method: every row against the scalar one and against plain arithmetic on seeded values; a layer
// with tensors of every awkward shape, whole and cut into blocks.
#include "kernels/host/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "offload/fp16.h"

namespace headrace::kernels {

using offload::Dtype;
using offload::ExactSum;
using offload::TensorPiece;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> wide_values(uint64_t element_count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> exponent(-60, 40);
    std::vector<float> values(element_count);
    for (float& value : values) value = normal(random) * std::exp(exponent(random));
    return values;
}

struct Part {
    std::vector<float> first, second;
    std::vector<TensorPiece> pieces;
    Dtype stash_dtype = Dtype::bf16;
    std::vector<uint32_t> stash = std::vector<uint32_t>(first.size());

    ReduceOutput reduce(const ReduceRow& row) {
        return reduce_part(row, {.first_use = first,
                                 .second_use = second,
                                 .pieces = pieces,
                                 .stash_dtype = stash_dtype,
                                 .stash = std::as_writable_bytes(std::span(stash))});
    }
    float stash_at(uint64_t i) const {
        if (stash_dtype == Dtype::fp32) return std::bit_cast<float>(stash[i]);
        const uint16_t half = reinterpret_cast<const uint16_t*>(stash.data())[i];
        return stash_dtype == Dtype::bf16 ? offload::bf16_to_float(half)
                                          : offload::fp16_to_float(half);
    }
};

Part whole_tensor_part(uint64_t element_count, uint32_t seed) {
    Part part{.first = wide_values(element_count, seed), .second = {}, .pieces = {}};
    part.pieces = {{.tensor = 0, .element_count = element_count}};
    return part;
}

// The tensors of SHAPE-1 and two longer ones, in one layer of several blocks.
offload::Layout awkward_layout(uint64_t part_elements) {
    return offload::make_layout({{.name = "layer",
                                  .tensors = {{.name = "none", .shape = {0, 8}},
                                              {.name = "one", .shape = {1}},
                                              {.name = "scalar", .shape = {}},
                                              {.name = "cube", .shape = {3, 5, 7}},
                                              {.name = "long", .shape = {5000}},
                                              {.name = "last", .shape = {77, 13}}},
                                  .borrowed_layers = {}}},
                                part_elements)
        .value();
}

// The flat run of the layer: seeded values in the tensors, zeros between them.
std::vector<float> flat_values(const offload::Layout& layout, uint32_t seed) {
    const std::vector<float> values = wide_values(layout.layers[0].element_count, seed);
    std::vector<float> flat(values.size());
    for (const offload::TensorExtent& extent : layout.layers[0].tensors) {
        for (uint64_t i = 0; i < extent.element_count; ++i) {
            flat[extent.first_element + i] = values[extent.first_element + i];
        }
    }
    return flat;
}

// All parts of the layout, last one first; the earliest tensor that is not finite.
ReduceOutput reduce_layer(const offload::Layout& layout, const std::vector<float>& flat) {
    ReduceOutput total;
    for (auto index = static_cast<uint32_t>(layout.parts.size()); index-- > 0;) {
        const offload::Part& extent = layout.parts[index];
        const auto begin = flat.begin() + static_cast<int64_t>(extent.first_element);
        Part part{.first = {begin, begin + static_cast<int64_t>(extent.element_count)},
                  .second = {},
                  .pieces = pieces_of(layout, index)};
        const ReduceOutput output = part.reduce(best_reduce_row());
        total.squares.merge(output.squares);
        if (output.non_finite_tensor.has_value()) {
            total.non_finite_tensor = output.non_finite_tensor;
        }
    }
    return total;
}

}  // namespace

TEST(Reduce, rows_have_scalar_bits) {
    for (const ReduceRow& row : reduce_rows()) {
        if (!has(row.required_isa)) continue;
        for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
            for (const bool two_uses : {false, true}) {
                Part expected = whole_tensor_part(3 * 2048, 1);
                if (two_uses) expected.second = wide_values(3 * 2048, 2);
                expected.stash_dtype = dtype;
                expected.first[5] = -0.0f;
                expected.first[6] = std::numeric_limits<float>::denorm_min();
                expected.first[2050] = std::numeric_limits<float>::max();
                expected.first[2051] = not_a_number;
                expected.first[2052] = -INFINITY;
                expected.first[2053] = -not_a_number;
                expected.first[2054] = 65519.9f;  // the last that fp16 rounds down
                expected.first[2055] = 65520.0f;
                expected.first[2056] = 0x1.8p-25f;  // between two subnormals of fp16
                if (two_uses) expected.second[2056] = 0;
                Part actual = expected;
                const ReduceOutput output = actual.reduce(row);
                EXPECT_EQ(output, expected.reduce(reduce_rows().back())) << row.name;
                EXPECT_EQ(actual.stash, expected.stash) << row.name;
                EXPECT_EQ(output.non_finite_tensor, 0u);
            }
        }
    }
}

TEST(Reduce, stash_and_norm_are_those_of_plain_arithmetic) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
        Part part = whole_tensor_part(2 * 2048, 3);
        part.second = wide_values(2 * 2048, 4);
        if (dtype == Dtype::fp16) {
            for (float& value : part.first) value = std::clamp(value, -3e4f, 3e4f);
            for (float& value : part.second) value = std::clamp(value, -3e4f, 3e4f);
        }
        part.stash_dtype = dtype;
        const ReduceOutput output = part.reduce(best_reduce_row());
        long double squares = 0;
        for (uint64_t i = 0; i < part.first.size(); ++i) {
            float expected = part.first[i] + part.second[i];
            if (dtype == Dtype::bf16) {
                expected = offload::bf16_to_float(offload::float_to_bf16(expected));
            } else if (dtype == Dtype::fp16) {
                expected = offload::fp16_to_float(offload::float_to_fp16(expected));
            }
            ASSERT_EQ(part.stash_at(i), expected);
            squares += static_cast<long double>(expected) * static_cast<long double>(expected);
        }
        const auto expected = static_cast<double>(squares);
        EXPECT_NEAR(output.squares.to_double(), expected, 1e-13 * expected);
        EXPECT_FALSE(output.non_finite_tensor.has_value());
    }
}

// 2048 ones in bf16 and one value that bf16 rounds: the norm is that of the rounded one.
TEST(Reduce, norm_is_of_the_rounded_values) {
    Part part = whole_tensor_part(2048, 5);
    std::fill(part.first.begin(), part.first.end(), 0.0f);
    part.first[100] = 1.003f;
    EXPECT_EQ(part.reduce(best_reduce_row()).squares.to_double(), 1.0);
    part.stash_dtype = Dtype::fp32;
    const auto exact = static_cast<double>(1.003f);
    EXPECT_EQ(part.reduce(best_reduce_row()).squares.to_double(), exact * exact);
}

// fp16 ends at 65504: a sum beyond it is not finite, and the step will be skipped.
TEST(Reduce, a_sum_beyond_fp16_is_not_finite) {
    Part part = whole_tensor_part(2048, 5);
    std::fill(part.first.begin(), part.first.end(), 4e4f);
    part.stash_dtype = Dtype::fp16;
    EXPECT_FALSE(part.reduce(best_reduce_row()).non_finite_tensor.has_value());
    part.second.assign(2048, 4e4f);
    EXPECT_EQ(part.reduce(best_reduce_row()).non_finite_tensor, 0u);
}

TEST(Reduce, an_fp32_stash_may_be_the_accumulator) {
    Part apart = whole_tensor_part(2048, 6);
    apart.second = wide_values(2048, 7);
    apart.stash_dtype = Dtype::fp32;
    std::vector<float> memory = apart.first;
    const ReduceOutput in_place =
        reduce_part(best_reduce_row(), {.first_use = memory,
                                        .second_use = apart.second,
                                        .pieces = apart.pieces,
                                        .stash_dtype = Dtype::fp32,
                                        .stash = std::as_writable_bytes(std::span(memory))});
    EXPECT_EQ(in_place, apart.reduce(best_reduce_row()));
    EXPECT_EQ(std::memcmp(memory.data(), apart.stash.data(), 2048 * sizeof(float)), 0);
}

TEST(Reduce, shape_1_cuts_do_not_change_the_norm) {
    const offload::Layout whole = awkward_layout(1 << 20);
    const std::vector<float> flat = flat_values(whole, 8);
    ASSERT_EQ(whole.parts.size(), 1u);
    const ReduceOutput expected = reduce_layer(whole, flat);
    EXPECT_GT(expected.squares.to_double(), 0.0);
    EXPECT_FALSE(expected.non_finite_tensor.has_value());
    for (const uint64_t part_elements : {2048, 4096, 6144}) {
        const offload::Layout cut = awkward_layout(part_elements);
        EXPECT_GT(cut.parts.size(), 1u);
        EXPECT_EQ(reduce_layer(cut, flat), expected);
    }
}

TEST(Reduce, the_first_tensor_that_is_not_finite_is_named_and_leaves_the_rest) {
    for (const uint64_t part_elements : {2048, 1 << 20}) {
        const offload::Layout layout = awkward_layout(part_elements);
        const auto& tensors = layout.layers[0].tensors;
        for (const float poison : {INFINITY, -INFINITY, not_a_number, 3.4e38f}) {
            for (const uint32_t tensor : {1u, 2u, 3u, 4u, 5u}) {
                std::vector<float> flat(layout.layers[0].element_count);
                flat[tensors[tensor].first_element + tensors[tensor].element_count - 1] = poison;
                flat[tensors[5].first_element + tensors[5].element_count - 1] = poison;
                const ReduceOutput output = reduce_layer(layout, flat);
                ASSERT_TRUE(output.non_finite_tensor.has_value());
                EXPECT_EQ(*output.non_finite_tensor, tensor);
                EXPECT_EQ(output.squares, ExactSum());
            }
        }
    }
}

TEST(Reduce, large_finite_values_do_not_overflow) {
    Part part = whole_tensor_part(2048, 9);
    std::fill(part.first.begin(), part.first.end(), 0x1p127f);
    part.stash_dtype = Dtype::fp32;
    const ReduceOutput output = part.reduce(best_reduce_row());
    EXPECT_FALSE(output.non_finite_tensor.has_value());
    EXPECT_EQ(output.squares.to_double(), 0x1p265);
}

TEST(Reduce, a_part_of_nothing_is_nothing) {
    Part part{.first = {}, .second = {}, .pieces = {}};
    EXPECT_EQ(part.reduce(best_reduce_row()), ReduceOutput());
}

TEST(ReduceDeathTest, broken_gaps_and_lengths_are_caught) {
    Part part = whole_tensor_part(2048, 10);
    part.pieces[0].element_count = 2000;
    part.first[2001] = not_a_number;
    EXPECT_DEATH(part.reduce(best_reduce_row()), "between the tensors");
    part.first.pop_back();
    EXPECT_DEATH(part.reduce(best_reduce_row()), "block_elements");
}

}  // namespace headrace::kernels
