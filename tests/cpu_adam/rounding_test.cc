// Goal: a moment kept in bf16 or int8 is within its stated error, right on average over the random
// bits, never a zero v made of one that is not, and follows changes that rounding to nearest would
// lose; the random bits are those written down, and look random.
// Method: all 2^16 random bits where that is every case; else many keys, and bounds of five
// standard deviations, so that a right rounding fails less than once in a million.
#include "cpu_adam/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "offload/dtype.h"
#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

using offload::bf16_to_float;

namespace {

constexpr size_t block_elements = 32;

// Blocks of moments as training has them: m of both signs, v of a square's size.
struct Moments {
    std::array<float, block_elements> m;
    std::array<float, block_elements> v;
};

std::vector<Moments> blocks_of(const std::vector<float>& values) {
    std::vector<Moments> blocks(values.size() / block_elements);
    for (size_t i = 0; i < values.size(); ++i) {
        Moments& block = blocks[i / block_elements];
        block.m[i % block_elements] = values[i];
        block.v[i % block_elements] = values[values.size() - 1 - i] * values[values.size() - 1 - i];
    }
    return blocks;
}

struct Stored {
    std::array<int8_t, block_elements> m{};
    std::array<uint8_t, block_elements> root{};
    std::array<uint16_t, 2> steps{};

    double m_at(size_t i) const { return static_cast<double>(load_m(m[i], steps[0])); }
    double root_at(size_t i) const { return std::sqrt(static_cast<double>(v_at(i))); }
    float v_at(size_t i) const { return load_v(root[i], steps[1]); }
};

Stored stored(const Moments& moments, const RoundingBits& bits) {
    std::array<uint32_t, block_elements> random;
    for (uint32_t i = 0; i < block_elements; ++i) random[i] = random_bits(bits, i);
    Stored result;
    store_block(moments.m, moments.v, random,
                {.m = result.m, .root = result.root, .steps = result.steps});
    return result;
}

double largest_magnitude(const std::array<float, block_elements>& values) {
    double largest = 0;
    for (const float value : values) {
        largest = std::max(largest, std::fabs(static_cast<double>(value)));
    }
    return largest;
}

}  // namespace

TEST(Rounding, random_bits_are_those_written_down) {
    const RoundingBits bits = rounding_bits({.seed = 42, .layer = 3}, 7);
    uint32_t x = 1000 + bits.first;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = ((x ^ (x >> 15)) + bits.second) * 0x846CA68Bu;
    EXPECT_EQ(random_bits(bits, 1000), x ^ (x >> 16));
    EXPECT_EQ(random_bits(bits, 1000 + (uint64_t{1} << 32)), random_bits(bits, 1000));
}

// Computed apart, in Python. A value that changes here changes the bits of every run with bf16 or
// int8 states.
TEST(Rounding, random_bits_stay_as_they_are) {
    EXPECT_EQ(random_bits(rounding_bits({.seed = 42, .layer = 0}, 1), 0), 0xACAFFBBBu);
    EXPECT_EQ(random_bits(rounding_bits({.seed = 42, .layer = 7}, 100), 12345), 0x4114DA3Bu);
}

TEST(Rounding, seed_step_layer_and_element_each_change_the_bits) {
    const RoundingKey key{.seed = 42, .layer = 3};
    const uint32_t bits = random_bits(rounding_bits(key, 7), 5);
    EXPECT_NE(random_bits(rounding_bits({.seed = 43, .layer = 3}, 7), 5), bits);
    EXPECT_NE(random_bits(rounding_bits({.seed = 42, .layer = 4}, 7), 5), bits);
    EXPECT_NE(random_bits(rounding_bits(key, 8), 5), bits);
    EXPECT_NE(random_bits(rounding_bits(key, 7), 6), bits);
}

// Every bit is set half the time, and agrees half the time with its neighbour in the word, in the
// next element and in the next step.
TEST(Rounding, random_bits_look_random) {
    constexpr uint32_t count = 1 << 16;
    const RoundingBits now = rounding_bits({.seed = 1, .layer = 2}, 10);
    const RoundingBits next = rounding_bits({.seed = 1, .layer = 2}, 11);
    std::array<std::array<uint32_t, 32>, 4> set{};
    for (uint32_t element = 0; element < count; ++element) {
        const uint32_t x = random_bits(now, element);
        const std::array<uint32_t, 4> words = {x, x ^ std::rotl(x, 1),
                                               x ^ random_bits(now, element + 1),
                                               x ^ random_bits(next, element)};
        for (size_t word = 0; word < words.size(); ++word) {
            for (size_t bit = 0; bit < 32; ++bit) set[word][bit] += (words[word] >> bit) & 1u;
        }
    }
    for (const auto& word : set) {
        for (const uint32_t times : word) EXPECT_NEAR(times, count / 2, 5 * 0.5 * 256);
    }
}

TEST(Rounding, bf16_is_exactly_right_on_average_and_next_to_the_value) {
    for (const float value : wide_values(40, 3)) {
        double sum = 0;
        for (uint32_t random = 0; random < 0x10000u; ++random) {
            const float kept = bf16_to_float(to_bf16(value, random));
            sum += static_cast<double>(kept);
            ASSERT_LT(std::fabs(kept - value), 0x1p-7f * std::fabs(value));
        }
        EXPECT_EQ(sum / 0x10000, static_cast<double>(value));
    }
}

TEST(Rounding, bf16_keeps_what_it_can_hold_and_one_nan) {
    for (const uint32_t random : {0u, 0x8000u, 0xFFFFu}) {
        for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
            const float value = bf16_to_float(static_cast<uint16_t>(bits));
            ASSERT_EQ(to_bf16(value, random), std::isnan(value) ? 0x7FC0u : bits);
        }
    }
}

TEST(Rounding, int8_is_within_its_bound_and_no_v_becomes_zero) {
    std::vector<Moments> blocks = blocks_of(plain_values(32 * 500, 1e-3f, 5));
    for (const Moments& block : blocks_of(wide_values(32 * 500, 6))) blocks.push_back(block);
    uint64_t adam_step = 0;
    for (const Moments& block : blocks) {
        const Stored kept = stored(block, rounding_bits({.seed = 9}, ++adam_step));
        const double m_bound = largest_magnitude(block.m) / 126;
        const double root_bound = std::sqrt(largest_magnitude(block.v)) / 253;
        for (size_t i = 0; i < block_elements; ++i) {
            ASSERT_LT(std::fabs(kept.m_at(i) - static_cast<double>(block.m[i])), m_bound);
            const double root = std::sqrt(static_cast<double>(block.v[i]));
            ASSERT_LT(std::fabs(kept.root_at(i) - root), root_bound);
            ASSERT_EQ(kept.v_at(i) == 0, block.v[i] == 0);
        }
    }
}

TEST(Rounding, int8_is_right_on_average) {
    constexpr uint64_t key_count = 4000;
    for (const Moments& block : blocks_of(plain_values(32 * 4, 1e-3f, 7))) {
        std::array<double, block_elements> m_sum{}, root_sum{};
        Stored kept;
        for (uint64_t step = 0; step < key_count; ++step) {
            kept = stored(block, rounding_bits({.seed = 5}, step));
            for (size_t i = 0; i < block_elements; ++i) {
                m_sum[i] += kept.m_at(i);
                root_sum[i] += kept.root_at(i);
            }
        }
        // A store is off by at most one step, so its deviation is at most half of one.
        const double deviations = 5 * 0.5 / std::sqrt(static_cast<double>(key_count)) + 0x1p-16;
        const double m_bound = deviations * static_cast<double>(bf16_to_float(kept.steps[0]));
        const double root_step = static_cast<double>(bf16_to_float(kept.steps[1]));
        for (size_t i = 0; i < block_elements; ++i) {
            EXPECT_NEAR(m_sum[i] / key_count, static_cast<double>(block.m[i]), m_bound);
            const double root = std::sqrt(static_cast<double>(block.v[i]));
            if (root < root_step) continue;  // kept as one step
            EXPECT_NEAR(root_sum[i] / key_count, root, deviations * root_step);
        }
    }
}

TEST(Rounding, int8_blocks_of_zeros_and_of_what_is_not_finite) {
    const Stored zeros = stored(Moments{}, rounding_bits({}, 1));
    EXPECT_EQ(zeros.steps, (std::array<uint16_t, 2>{0, 0}));
    EXPECT_EQ(zeros.m, (std::array<int8_t, block_elements>{}));
    EXPECT_EQ(zeros.root, (std::array<uint8_t, block_elements>{}));

    Moments tiny{};
    tiny.m[3] = 1e-44f;
    tiny.v[4] = 1e-44f;
    const Stored kept = stored(tiny, rounding_bits({}, 1));
    EXPECT_EQ(bf16_to_float(kept.steps[0]), 0x1p-100f);
    EXPECT_GT(kept.v_at(4), 0.0f);

    Moments infinite{};
    infinite.m[0] = INFINITY;
    infinite.v[1] = NAN;
    const Stored nans = stored(infinite, rounding_bits({}, 1));
    EXPECT_EQ(nans.steps, (std::array<uint16_t, 2>{0x7FC0, 0x7FC0}));
    EXPECT_TRUE(std::isnan(nans.m_at(9)));
    EXPECT_TRUE(std::isnan(nans.v_at(9)));
}

// v moves to another level with beta2 = 0.999, as the rule moves it; to nearest it stays for ever.
TEST(Rounding, slow_averages_move_where_rounding_to_nearest_freezes_them) {
    Moments at_random{}, nearest{};
    at_random.v.fill(1.0f);
    nearest.v.fill(1.0f);
    float bf16_at_random = 1.0f, bf16_nearest = 1.0f;
    const std::array<uint32_t, block_elements> halves = [] {
        std::array<uint32_t, block_elements> all{};
        all.fill(nearest_bits);
        return all;
    }();
    for (uint64_t step = 1; step <= 3000; ++step) {
        const auto moved = [](float v) { return std::fma(0.001f, 0.25f - v, v); };
        for (Moments* moments : {&at_random, &nearest}) {
            for (float& v : moments->v) v = moved(v);
        }
        const RoundingBits bits = rounding_bits({.seed = 3}, step);
        const Stored random_kept = stored(at_random, bits);
        Stored nearest_kept;
        store_block(nearest.m, nearest.v, halves,
                    {.m = nearest_kept.m, .root = nearest_kept.root, .steps = nearest_kept.steps});
        for (size_t i = 0; i < block_elements; ++i) {
            at_random.v[i] = random_kept.v_at(i);
            nearest.v[i] = nearest_kept.v_at(i);
        }
        const uint32_t random = random_bits(bits, 0) >> 16;
        bf16_at_random = bf16_to_float(to_bf16(moved(bf16_at_random), random));
        bf16_nearest = bf16_to_float(to_bf16(moved(bf16_nearest), nearest_bits >> 16));
    }
    const float expected = 0.25f + 0.75f * std::exp(-3.0f);
    float mean = 0;
    for (const float v : at_random.v) mean += v / block_elements;
    EXPECT_NEAR(mean, expected, 0.1f * expected);
    EXPECT_NEAR(bf16_at_random, expected, 0.15f * expected);
    EXPECT_GT(nearest.v[0], 0.9f);
    EXPECT_GT(bf16_nearest, 0.9f);
}

}  // namespace headrace::cpu_adam
