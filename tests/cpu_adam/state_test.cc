// Goal: the state of a part lies where its format says, and a range of a part is that range and no
// other; a thread with another floating-point mode is caught.
// Method: views against offsets; update_range against one call of the row over separate arrays.
#include "cpu_adam/state.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cstring>
#include <vector>

#include "offload/fp16.h"
#include "tests/cpu_adam/adam_reference.h"

namespace headrace::cpu_adam {

using offload::Dtype;

namespace {

constexpr uint64_t element_count = 2048 * 2 + 5;

// The bytes of a part with seeded weights and gradients, and a state of zeros.
struct PartBytes {
    PartBytes(Dtype weight, Dtype gradient) : weight_dtype(weight), gradient_dtype(gradient) {
        fill(weight_dtype, plain_values(element_count, 0.1f, 1), &weight_bytes);
        fill(gradient_dtype, plain_values(element_count, 0.1f, 2), &gradient_bytes);
        state_bytes.resize(offload::opt_bytes(weight_dtype, StateFormat::fp32, element_count));
    }
    static void fill(Dtype dtype, const std::vector<float>& values, std::vector<std::byte>* bytes) {
        bytes->resize(bytes_of(dtype, values.size()));
        const std::vector<uint16_t> bf16 = to_bf16(values);
        const void* source = values.data();
        std::vector<uint16_t> fp16;
        for (const float value : values) fp16.push_back(offload::float_to_fp16(value));
        if (dtype == Dtype::bf16) source = bf16.data();
        if (dtype == Dtype::fp16) source = fp16.data();
        std::memcpy(bytes->data(), source, bytes->size());
    }
    PartUpdate update() {
        return {.element_count = element_count,
                .weight_dtype = weight_dtype,
                .gradient_dtype = gradient_dtype,
                .weight = weight_bytes,
                .state = state_bytes,
                .gradient = gradient_bytes};
    }
    bool operator==(const PartBytes&) const = default;

    Dtype weight_dtype, gradient_dtype;
    std::vector<std::byte> weight_bytes, state_bytes, gradient_bytes;
};

const StepFactors& factors() {
    static const StepFactors value = factors_of({.learning_rate = 1e-3, .weight_decay = 0.1});
    return value;
}

}  // namespace

TEST(State, bytes_are_those_of_the_formats) {
    EXPECT_EQ(offload::opt_bytes(Dtype::bf16, StateFormat::fp32, 2048), 20480u);
    EXPECT_EQ(offload::opt_bytes(Dtype::fp32, StateFormat::fp32, 2048), 16384u);
    EXPECT_EQ(offload::opt_bytes(Dtype::bf16, StateFormat::fp32, 0), 0u);
}

TEST(State, views_lie_m_then_v_then_lo) {
    std::vector<float> memory(100);
    const auto bytes = std::as_writable_bytes(std::span(memory));
    const StateView split = view_state(Dtype::bf16, StateFormat::fp32, bytes, 10);
    EXPECT_EQ(split.m.data(), memory.data());
    EXPECT_EQ(split.v.data(), memory.data() + 10);
    EXPECT_EQ(static_cast<void*>(split.lo.data()), static_cast<void*>(memory.data() + 20));
    EXPECT_EQ(split.lo.size(), 10u);
    const StateView plain = view_state(Dtype::fp32, StateFormat::fp32, bytes, 10);
    EXPECT_EQ(plain.v.data(), memory.data() + 10);
    EXPECT_TRUE(plain.lo.empty());
}

TEST(State, a_range_is_that_range_in_every_format) {
    const ElementRange range{.first_element = 2048, .element_count = 1000};
    for (const Dtype weight : {Dtype::bf16, Dtype::fp32}) {
        for (const Dtype gradient : {Dtype::bf16, Dtype::fp32}) {
            const PartBytes untouched(weight, gradient);
            PartBytes whole = untouched, ranged = untouched;
            update_range(best(), factors(), whole.update(), {0, element_count});
            update_range(best(), factors(), ranged.update(), range);
            EXPECT_NE(whole, ranged);
            const auto w_bytes = bytes_of(weight, 1);
            for (uint64_t i = 0; i < element_count; ++i) {
                const bool inside = i >= range.first_element && i < 2048 + 1000;
                const PartBytes& expected = inside ? whole : untouched;
                const auto at = i * w_bytes;
                ASSERT_EQ(
                    std::memcmp(&ranged.weight_bytes[at], &expected.weight_bytes[at], w_bytes), 0)
                    << i;
            }
            update_range(best(), factors(), ranged.update(), {0, 2048});
            update_range(best(), factors(), ranged.update(), {3048, element_count - 3048});
            EXPECT_EQ(whole, ranged);
        }
    }
}

TEST(State, a_fresh_state_means_that_the_master_is_the_weight) {
    PartBytes part(Dtype::bf16, Dtype::bf16);
    const std::vector<std::byte> weights = part.weight_bytes;
    update_range(best(), factors_of({.learning_rate = 0}), part.update(), {0, element_count});
    EXPECT_EQ(part.weight_bytes, weights);
    const StateView state =
        view_state(Dtype::bf16, StateFormat::fp32, part.state_bytes, element_count);
    for (const uint16_t lo : state.lo) ASSERT_EQ(lo, 0);
}

// Odd counts, ranges that are no multiple of what is copied at once, and states that are not zero.
TEST(State, an_update_of_the_weight_alone_has_its_bits_and_leaves_the_state) {
    for (const Row& row : rows()) {
        if (!is_supported(row)) continue;
        for (const Dtype weight : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
            for (const auto format : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
                PartBytes whole(weight, Dtype::bf16);
                whole.state_bytes.assign(offload::opt_bytes(weight, format, element_count), {});
                const auto update_of = [&](PartBytes& part) {
                    PartUpdate update = part.update();
                    update.format = format;
                    update.rounding = {.seed = 7, .layer = 3};
                    update.first_element = 4096;
                    return update;
                };
                const ElementRange all{.first_element = 0, .element_count = element_count};
                for (int step = 0; step < 3; ++step) {
                    update_range(row, factors(), update_of(whole), all);
                }
                PartBytes alone = whole;
                const std::vector<std::byte> before = whole.state_bytes;
                update_range(row, factors(), update_of(whole), all);
                PartUpdate first = update_of(alone);
                first.writes = Writes::weight;
                update_range(row, factors(), first, {.first_element = 0, .element_count = 2048});
                update_range(row, factors(), first,
                             {.first_element = 2048, .element_count = element_count - 2048});
                EXPECT_EQ(alone.weight_bytes, whole.weight_bytes) << row.name;
                EXPECT_EQ(alone.state_bytes, before) << row.name;
                EXPECT_NE(whole.state_bytes, before);
            }
        }
    }
}

TEST(StateDeathTest, foreign_floating_point_modes_are_caught) {
    for (const unsigned mode : {0x8000u, 0x0040u, 0x2000u}) {
        PartBytes part(Dtype::bf16, Dtype::bf16);
        const unsigned before = _mm_getcsr();
        EXPECT_DEATH(
            {
                _mm_setcsr(before | mode);
                update_range(best(), factors(), part.update(), {0, element_count});
            },
            "thread_rounds_as_ieee");
    }
}

TEST(StateDeathTest, a_short_state_is_caught) {
    PartBytes part(Dtype::bf16, Dtype::bf16);
    PartUpdate update = part.update();
    update.state = update.state.first(update.state.size() - 2);
    EXPECT_DEATH(update_range(best(), factors(), update, {0, element_count}), "opt_bytes");
    EXPECT_DEATH(update_range(best(), factors(), part.update(), {1, element_count}), "range");
}

}  // namespace headrace::cpu_adam
