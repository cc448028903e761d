// Goal: every row of the update has the bits of the scalar row, for every format, count, start and
// value; memory beside the operands stays untouched; and the scalar row is right.
// Method: each row that the machine can run, and the AVX-512 source over SIMDe, against the scalar
// row on seeded values over 40 powers of e, with canaries; one step against double arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu_adam/variants.h"
#include "offload/fp16.h"
#include "offload/state_format.h"
#include "offload/units.h"
#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

using offload::Dtype;
using offload::StateFormat;

#ifdef HEADRACE_HAS_SIMDE
void update_avx512_emulated(const StepFactors& factors, const Operands& operands);
#endif

namespace {

constexpr uint64_t canary_elements = 24;
constexpr uint16_t canary_16 = 0xA55A;
constexpr float canary_32 = -1234.5f;
constexpr uint8_t canary_8 = 0x5A;

std::vector<Row> rows_to_test() {
    std::vector<Row> result;
    for (const Row& row : rows()) {
        if (is_supported(row)) result.push_back(row);
    }
#ifdef HEADRACE_HAS_SIMDE
    result.push_back({"avx512_emulated", Isa::baseline, &update_avx512_emulated});
#endif
    return result;
}

// An array of elements between canaries, beginning `start` elements after an aligned address.
template <typename T>
struct Guarded {
    Guarded(const std::vector<T>& values, uint64_t start, T canary)
        : canary_value(canary),
          element_count(values.size()),
          first(canary_elements + start),
          all(values.size() + 2 * canary_elements + start, canary) {
        for (size_t i = 0; i < values.size(); ++i) all[first + i] = values[i];
    }
    T* data() { return all.data() + first; }
    bool canaries_live() const {
        for (size_t i = 0; i < all.size(); ++i) {
            const bool outside = i < first || i >= first + element_count;
            if (outside && std::memcmp(&all[i], &canary_value, sizeof(T)) != 0) return false;
        }
        return true;
    }
    bool operator==(const Guarded& other) const {
        return all.size() == other.all.size() &&
               std::memcmp(all.data(), other.all.data(), all.size() * sizeof(T)) == 0;
    }
    T canary_value;
    uint64_t element_count;
    uint64_t first;
    std::vector<T> all;
};

struct Format {
    Dtype weight = Dtype::bf16;
    StateFormat moments = StateFormat::fp32;
    Dtype gradient = Dtype::bf16;
};

std::vector<Format> all_formats() {
    std::vector<Format> formats;
    for (const Dtype weight : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
        for (const StateFormat moments :
             {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
            for (const Dtype gradient : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
                formats.push_back({weight, moments, gradient});
            }
        }
    }
    return formats;
}

std::string name_of(const Format& format) {
    return std::string(offload::name_of(format.weight)) + " weight, " +
           std::string(offload::name_of(format.moments)) + " moments, " +
           std::string(offload::name_of(format.gradient)) + " gradient";
}

// One array of every kind; a format uses some of them.
struct Arrays {
    Arrays(uint64_t element_count, uint64_t start, uint32_t seed)
        : hi(to_bf16(wide_values(element_count, seed)), start, canary_16),
          lo(std::vector<uint16_t>(element_count), start, canary_16),
          weight(wide_values(element_count, seed), start, canary_32),
          weight_fp16(std::vector<uint16_t>(element_count), start, canary_16),
          m(std::vector<float>(element_count), start, canary_32),
          v(std::vector<float>(element_count), start, canary_32),
          m_bf16(std::vector<uint16_t>(element_count), start, canary_16),
          v_bf16(std::vector<uint16_t>(element_count), start, canary_16),
          m_int8(std::vector<int8_t>(element_count), start, canary_8),
          root_uint8(std::vector<uint8_t>(element_count), start, canary_8),
          steps(std::vector<uint16_t>(2 * offload::div_ceil(element_count, 32)), start, canary_16),
          gradient_bf16(to_bf16(wide_values(element_count, seed + 1)), start, canary_16),
          gradient_fp16(to_fp16(wide_values(element_count, seed + 1)), start, canary_16),
          gradient_fp32(wide_values(element_count, seed + 2), start, canary_32) {}

    static std::vector<uint16_t> to_fp16(const std::vector<float>& values) {
        std::vector<uint16_t> halves;
        for (const float value : values) {  // an infinite gradient is not what is tested here
            halves.push_back(offload::float_to_fp16(std::clamp(value, -65504.0f, 65504.0f)));
        }
        return halves;
    }

    Operands operands(const Format& format) {
        Operands o{.element_count = m.element_count,
                   .first_element = 96,
                   .rounding = {.first = 0x12345678, .second = 0x9ABCDEF0}};
        const bool split = format.weight == Dtype::bf16;
        o.hi = split ? hi.data() : nullptr;
        o.lo = split ? lo.data() : nullptr;
        o.weight = split ? nullptr : weight.data();
        o.weight_fp16 = format.weight == Dtype::fp16 ? weight_fp16.data() : nullptr;
        if (format.moments == StateFormat::fp32) {
            o.m = m.data();
            o.v = v.data();
        } else if (format.moments == StateFormat::bf16) {
            o.m_bf16 = m_bf16.data();
            o.v_bf16 = v_bf16.data();
        } else {
            o.m_int8 = m_int8.data();
            o.root_uint8 = root_uint8.data();
            o.steps = steps.data();
        }
        o.gradient_bf16 = format.gradient == Dtype::bf16 ? gradient_bf16.data() : nullptr;
        o.gradient_fp16 = format.gradient == Dtype::fp16 ? gradient_fp16.data() : nullptr;
        o.gradient_fp32 = format.gradient == Dtype::fp32 ? gradient_fp32.data() : nullptr;
        return o;
    }
    bool canaries_live() const {
        return hi.canaries_live() && lo.canaries_live() && weight.canaries_live() &&
               weight_fp16.canaries_live() && m.canaries_live() && v.canaries_live() &&
               m_bf16.canaries_live() && v_bf16.canaries_live() && m_int8.canaries_live() &&
               root_uint8.canaries_live() && steps.canaries_live() &&
               gradient_bf16.canaries_live() && gradient_fp16.canaries_live() &&
               gradient_fp32.canaries_live();
    }
    bool operator==(const Arrays&) const = default;

    Guarded<uint16_t> hi, lo;
    Guarded<float> weight;
    Guarded<uint16_t> weight_fp16;
    Guarded<float> m, v;
    Guarded<uint16_t> m_bf16, v_bf16;
    Guarded<int8_t> m_int8;
    Guarded<uint8_t> root_uint8;
    Guarded<uint16_t> steps;
    Guarded<uint16_t> gradient_bf16, gradient_fp16;
    Guarded<float> gradient_fp32;
};

constexpr Format plain_fp32{Dtype::fp32, StateFormat::fp32, Dtype::fp32};

AdamStep step_of(uint64_t adam_step, Decay decay = Decay::decoupled) {
    return {.learning_rate = 1e-3,
            .weight_decay = 0.1,
            .adam_step = adam_step,
            .gradient_scale = 0.37f,
            .decay = decay};
}

struct Extent {
    uint64_t element_count = 0;
    uint64_t start = 0;  // elements after an aligned address
};

void expect_scalar_bits(const Row& row, Format format, Extent extent, uint64_t step_count) {
    Arrays expected(extent.element_count, extent.start, 7);
    Arrays actual = expected;
    for (uint64_t t = 1; t <= step_count; ++t) {
        const Decay decay = t % 2 == 0 ? Decay::l2 : Decay::decoupled;
        const StepFactors factors = factors_of(step_of(t, decay));
        update_scalar(factors, expected.operands(format));
        row.update(factors, actual.operands(format));
    }
    EXPECT_TRUE(actual == expected) << row.name << " count " << extent.element_count << " start "
                                    << extent.start << " " << name_of(format);
    EXPECT_TRUE(actual.canaries_live()) << row.name << " count " << extent.element_count;
}

}  // namespace

TEST(Rows, tested_ones_are_named) {
    std::string names;
    for (const Row& row : rows_to_test()) names += std::string(row.name) + " ";
    RecordProperty("rows", names);
    EXPECT_NE(names.find("scalar"), std::string::npos);
}

TEST(Rows, math_4_every_count_and_start_has_scalar_bits_and_live_canaries) {
    for (const Row& row : rows_to_test()) {
        for (const uint64_t count : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 1023, 1024, 1025}) {
            for (const uint64_t start : {0, 1, 3}) {
                for (const Format& format : all_formats()) {
                    expect_scalar_bits(row, format, {count, start}, 3);
                }
            }
        }
    }
}

TEST(Rows, math_4_a_million_and_three_elements) {
    expect_scalar_bits(best(), {}, {(1 << 20) + 3, 1}, 1);
}

TEST(Rows, bits_are_equal_after_twenty_steps) {
    for (const Row& row : rows_to_test()) {
        for (const Format& format : all_formats()) {
            expect_scalar_bits(row, format, {1024 + 5, 0}, 20);
        }
    }
}

TEST(Rows, the_weight_alone_has_the_bits_of_the_whole_update_and_nothing_else_changes) {
    const StepFactors factors = factors_of(step_of(4));
    for (const Row& row : rows_to_test()) {
        for (const uint64_t count : {31, 512, 1024 + 5}) {
            for (const Format& format : all_formats()) {
                Arrays expected(count, 1, 7);
                for (uint64_t t = 1; t < 4; ++t) {
                    update_scalar(factors_of(step_of(t)), expected.operands(format));
                }
                Arrays actual = expected, whole = expected;
                Operands alone = actual.operands(format);
                alone.writes = Writes::weight;
                row.update(factors, alone);
                update_scalar(factors, whole.operands(format));
                if (format.weight == Dtype::bf16) expected.hi = whole.hi;
                if (format.weight == Dtype::fp16) expected.weight_fp16 = whole.weight_fp16;
                if (format.weight == Dtype::fp32) expected.weight = whole.weight;
                EXPECT_TRUE(actual == expected) << row.name << " " << name_of(format);
                EXPECT_FALSE(whole == expected);
            }
        }
    }
}

// Every bf16 and every fp16 there is as a gradient; random bits as gradients, weights and states,
// which holds NaN, infinite values and denormals of every kind.
TEST(Rows, every_bit_pattern_has_scalar_bits) {
    std::mt19937 random(17);
    Arrays start(1 << 16, 0, 3);
    for (uint32_t i = 0; i < 1 << 16; ++i) {
        start.gradient_bf16.data()[i] = static_cast<uint16_t>(i);
        start.gradient_fp16.data()[i] = static_cast<uint16_t>(i);
        start.gradient_fp32.data()[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (i % 4 == 0) continue;  // beside plain states
        start.weight.data()[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
        start.m.data()[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
        start.v.data()[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
        const uint32_t bits[2] = {static_cast<uint32_t>(random()), static_cast<uint32_t>(random())};
        start.hi.data()[i] = static_cast<uint16_t>(bits[0]);
        start.lo.data()[i] = static_cast<uint16_t>(bits[0] >> 16);
        start.m_bf16.data()[i] = static_cast<uint16_t>(bits[1]);
        start.v_bf16.data()[i] = static_cast<uint16_t>(bits[1] >> 16);
        start.m_int8.data()[i] = static_cast<int8_t>(bits[1] >> 4);
        start.root_uint8.data()[i] = static_cast<uint8_t>(bits[1] >> 12);
        if (i % 3 == 0) start.steps.data()[i / 16] = static_cast<uint16_t>(bits[0] >> 8);
    }
    for (const Format& format : all_formats()) {
        Arrays expected = start;
        for (uint64_t t = 1; t <= 2; ++t) {
            update_scalar(factors_of(step_of(t)), expected.operands(format));
        }
        for (const Row& row : rows_to_test()) {
            if (row.required_isa == Isa::baseline && row.update == &update_scalar) continue;
            Arrays actual = start;
            for (uint64_t t = 1; t <= 2; ++t) {
                row.update(factors_of(step_of(t)), actual.operands(format));
            }
            EXPECT_TRUE(actual == expected) << row.name << " " << name_of(format);
        }
    }
}

TEST(Rows, special_values_have_scalar_bits) {
    const float largest = std::numeric_limits<float>::max();
    const float denormal = std::numeric_limits<float>::denorm_min();
    const std::vector<float> specials = {0.0f,      -0.0f,      largest, -largest, denormal,
                                         -denormal, 1e-38f,     1e30f,   -1e20f,   INFINITY,
                                         -INFINITY, 0x1.018p0f, 1.0f,    0x1p-126f};
    std::vector<float> weights, gradients;
    for (const float weight : specials) {
        for (const float gradient : specials) {
            if (!std::isfinite(gradient)) continue;
            weights.push_back(weight);
            gradients.push_back(gradient);
        }
    }
    for (const Row& row : rows_to_test()) {
        Arrays expected(weights.size(), 0, 3), actual(weights.size(), 0, 3);
        for (Arrays* arrays : {&expected, &actual}) {
            std::copy(weights.begin(), weights.end(), arrays->weight.data());
            std::copy(gradients.begin(), gradients.end(), arrays->gradient_fp32.data());
        }
        for (uint64_t t = 1; t <= 4; ++t) {
            update_scalar(factors_of(step_of(t)), expected.operands(plain_fp32));
            row.update(factors_of(step_of(t)), actual.operands(plain_fp32));
        }
        EXPECT_TRUE(actual == expected) << row.name;
        for (size_t i = 0; i < weights.size(); ++i) {
            EXPECT_TRUE(std::isfinite(expected.v.data()[i])) << weights[i] << " " << gradients[i];
        }
    }
}

// A step with learning rate 0 joins and splits the master and must give its bits back: all values
// of lo with hi that covers every exponent, both signs and the ties.
TEST(Rows, split_master_is_lossless_and_every_nan_becomes_one) {
    const StepFactors factors = factors_of({.learning_rate = 0});
    std::vector<uint32_t> masters;
    for (uint32_t upper = 0; upper < 0x10000; upper += 0x11) {
        for (uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xC000u, 0xFFFFu, upper}) {
            masters.push_back(upper << 16 | lower);
        }
    }
    for (const Row& row : rows_to_test()) {
        Arrays arrays(masters.size(), 0, 5);
        for (size_t i = 0; i < masters.size(); ++i) {
            arrays.hi.data()[i] = static_cast<uint16_t>((masters[i] + 0x8000u) >> 16);
            arrays.lo.data()[i] = static_cast<uint16_t>(masters[i]);
            arrays.gradient_bf16.data()[i] = 0;
        }
        row.update(factors, arrays.operands({}));
        for (size_t i = 0; i < masters.size(); ++i) {
            if (!std::isfinite(std::bit_cast<float>(masters[i]))) continue;
            const float master = master_of(arrays.hi.data()[i], arrays.lo.data()[i]);
            ASSERT_EQ(std::bit_cast<uint32_t>(master), masters[i]) << row.name;
        }
        for (size_t i = 0; i < masters.size(); ++i) {
            if (!std::isnan(std::bit_cast<float>(masters[i]))) continue;
            ASSERT_EQ(arrays.hi.data()[i], 0x7FC0) << row.name;
            ASSERT_EQ(arrays.lo.data()[i], 0) << row.name;
        }
    }
}

// Where the weight is not smaller than a few steps; below that the rounding of the step itself, a
// few ulp of the step, is what counts.
TEST(Rows, first_step_is_within_one_ulp_of_double) {
    const uint64_t count = 20000;
    for (const double learning_rate : {1e-5, 1e-3}) {
        Arrays arrays(count, 0, 1);
        const std::vector<float> weights = plain_values(count, 0.5f, 11);
        const std::vector<float> gradients = wide_values(count, 12);
        std::copy(weights.begin(), weights.end(), arrays.weight.data());
        std::copy(gradients.begin(), gradients.end(), arrays.gradient_fp32.data());
        const AdamStep step{.learning_rate = learning_rate, .weight_decay = 0.01};
        update_scalar(factors_of(step), arrays.operands(plain_fp32));
        for (size_t i = 0; i < count; ++i) {
            ReferenceElement element{.w = static_cast<double>(weights[i])};
            if (std::fabs(element.w) < 4 * learning_rate) continue;
            update_reference(step, static_cast<double>(gradients[i]), &element);
            const double correct = static_cast<double>(static_cast<float>(element.w));
            const double actual = static_cast<double>(arrays.weight.data()[i]);
            ASSERT_LE(std::fabs(actual - correct), ulp_of(correct)) << i << " w " << weights[i];
        }
    }
}

TEST(Rows, padding_stays_zero) {
    for (const Row& row : rows_to_test()) {
        Arrays arrays(4096 + 3, 0, 1);
        std::fill_n(arrays.hi.data(), 4099, uint16_t{0});
        std::fill_n(arrays.gradient_bf16.data(), 4099, uint16_t{0});
        for (uint64_t t = 1; t <= 5; ++t) {
            row.update(factors_of(step_of(t)), arrays.operands({}));
        }
        for (size_t i = 0; i < 4099; ++i) {
            ASSERT_EQ(arrays.hi.data()[i], 0) << row.name;
            ASSERT_EQ(arrays.lo.data()[i], 0) << row.name;
            ASSERT_EQ(std::bit_cast<uint32_t>(arrays.m.data()[i]), 0u) << row.name;
            ASSERT_EQ(std::bit_cast<uint32_t>(arrays.v.data()[i]), 0u) << row.name;
        }
    }
}

TEST(Variants, best_is_the_first_supported_row_and_rows_have_names) {
    const Row& row = best();
    EXPECT_TRUE(is_supported(row));
    ASSERT_TRUE(by_name("scalar").ok());
    EXPECT_EQ(by_name(row.name).value()->name, row.name);
    for (const Row& other : rows()) {
        const auto found = by_name(other.name);
        EXPECT_EQ(found.ok(), is_supported(other));
        if (&other == &row) break;
        EXPECT_FALSE(is_supported(other));
    }
    const auto unknown = by_name("neon");
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code, offload::ErrorCode::usage);
    EXPECT_NE(unknown.error().text().find("scalar"), std::string::npos);
}

}  // namespace headrace::cpu_adam
