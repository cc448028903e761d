// Goal: a conversion keeps the weights' bits, is exact where it says so and within its bound
// elsewhere; copies between parts that are cut differently are bit for bit.
// Method: states that a few steps made, through every pair of formats.
#include "cpu_adam/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "offload/units.h"
#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

using offload::Dtype;

namespace {

constexpr uint64_t element_count = 2048 + 32 * 3 + 7;
constexpr StateFormat formats[] = {StateFormat::fp32, StateFormat::bf16, StateFormat::int8};

class State {
  public:
    State(Dtype weight_dtype, StateFormat state_format, uint64_t count = element_count)
        : weight(weight_dtype),
          format(state_format),
          elements(count),
          words(offload::div_ceil(offload::opt_bytes(weight, format, count), 4)) {}

    std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
    StateView view() { return view_state(weight, format, bytes(), elements); }
    bool operator==(const State&) const = default;

    Dtype weight;
    StateFormat format;
    uint64_t elements;
    std::vector<uint32_t> words;
};

// After three steps on seeded gradients.
State trained(Dtype weight, StateFormat format) {
    State state(weight, format);
    std::vector<uint32_t> weights(element_count, 0x3C003C00u);
    for (uint64_t t = 1; t <= 3; ++t) {
        const std::vector<float> gradients =
            plain_values(element_count, 0.1f, static_cast<uint32_t>(t));
        const PartUpdate part{.element_count = element_count,
                              .weight_dtype = weight,
                              .format = format,
                              .gradient_dtype = Dtype::fp32,
                              .weight = std::as_writable_bytes(std::span(weights)),
                              .state = state.bytes(),
                              .gradient = std::as_bytes(std::span(gradients))};
        update_range(best(), factors_of({.learning_rate = 1e-3, .adam_step = t}), part,
                     {0, element_count});
    }
    return state;
}

struct Fp32Moments {
    std::vector<float> m = std::vector<float>(element_count);
    std::vector<float> v = std::vector<float>(element_count);
    bool operator==(const Fp32Moments&) const = default;
};

Fp32Moments moments_of(State& state) {
    Fp32Moments moments;
    read_moments(state.view(), {0, element_count}, moments.m, moments.v);
    return moments;
}

State converted(State& source, StateFormat format) {
    State target(source.weight, format);
    convert_state(source.view(), target.view(),
                  {.source_first = 0, .target_first = 0, .element_count = element_count});
    return target;
}

// Of element i's block.
float largest_of_block(const std::vector<float>& values, uint64_t i) {
    float largest = 0;
    const uint64_t end = std::min<uint64_t>(i / 32 * 32 + 32, values.size());
    for (uint64_t k = i / 32 * 32; k < end; ++k) largest = std::max(largest, std::fabs(values[k]));
    return largest;
}

}  // namespace

TEST(Convert, what_belongs_to_the_weights_keeps_its_bits) {
    for (const Dtype weight : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
        for (const StateFormat from : formats) {
            State source = trained(weight, from);
            for (const StateFormat to : formats) {
                State target = converted(source, to);
                EXPECT_TRUE(std::ranges::equal(source.view().lo, target.view().lo));
                EXPECT_TRUE(std::ranges::equal(source.view().master, target.view().master));
            }
            const bool has_lo = std::ranges::any_of(source.view().lo, [](auto lo) { return lo; });
            EXPECT_EQ(has_lo, weight == Dtype::bf16);
        }
    }
}

TEST(Convert, into_fp32_is_exact_and_bf16_comes_back) {
    for (const StateFormat from : formats) {
        State source = trained(Dtype::bf16, from);
        State fp32 = converted(source, StateFormat::fp32);
        EXPECT_EQ(moments_of(fp32), moments_of(source));
        if (from != StateFormat::int8) {
            EXPECT_EQ(converted(fp32, from), source);
        }
    }
}

TEST(Convert, into_bf16_and_int8_is_within_the_bound) {
    State source = trained(Dtype::bf16, StateFormat::fp32);
    State bf16 = converted(source, StateFormat::bf16);
    State int8 = converted(source, StateFormat::int8);
    const Fp32Moments exact = moments_of(source), in_bf16 = moments_of(bf16),
                      in_int8 = moments_of(int8);
    for (uint64_t i = 0; i < element_count; ++i) {
        ASSERT_LE(std::fabs(in_bf16.m[i] - exact.m[i]), 0x1p-8f * std::fabs(exact.m[i]));
        ASSERT_LE(std::fabs(in_bf16.v[i] - exact.v[i]), 0x1p-8f * exact.v[i]);
        const float m_largest = largest_of_block(exact.m, i);
        ASSERT_LE(std::fabs(in_int8.m[i] - exact.m[i]), m_largest / 252);
        const float root_largest = std::sqrt(largest_of_block(exact.v, i));
        const float root = std::sqrt(exact.v[i]);
        const float bound = root < root_largest / 253 ? root_largest / 253 : root_largest / 506;
        ASSERT_LE(std::fabs(std::sqrt(in_int8.v[i]) - root), bound);
        ASSERT_EQ(in_int8.v[i] == 0, exact.v[i] == 0);
    }
    EXPECT_NE(in_bf16, exact);
    EXPECT_NE(in_int8, exact);
}

TEST(Convert, parts_cut_differently_hold_the_same_elements) {
    for (const Dtype weight : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
        for (const StateFormat format : formats) {
            State whole = trained(weight, format);
            State first(weight, format, 1056), second(weight, format, element_count - 1056);
            copy_state(whole.view(), first.view(), {0, 0, 1056});
            copy_state(whole.view(), second.view(), {1056, 0, 992});
            copy_state(whole.view(), second.view(), {2048, 992, element_count - 2048});
            EXPECT_NE(second, State(weight, format, element_count - 1056));
            State joined(weight, format);
            copy_state(first.view(), joined.view(), {0, 0, 1056});
            copy_state(second.view(), joined.view(), {0, 1056, element_count - 1056});
            EXPECT_EQ(joined, whole);
        }
    }
}

TEST(ConvertDeathTest, a_range_inside_an_int8_block_is_caught) {
    State state = trained(Dtype::bf16, StateFormat::int8);
    std::vector<float> values(16);
    EXPECT_DEATH(read_moments(state.view(), {16, 16}, values, values), "is_whole_blocks");
    EXPECT_DEATH(read_moments(state.view(), {0, 16}, values, values), "is_whole_blocks");
}

}  // namespace headrace::cpu_adam
