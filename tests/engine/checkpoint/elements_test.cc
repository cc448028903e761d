// Goal: every conversion is exact or rounded as stated. Method: all 65536 halves, the midpoints
// between neighbours, and the split of every kind of float.
#include "engine/checkpoint/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "offload/fp16.h"

namespace headrace::engine {
namespace {

using offload::Dtype;
using offload::float_to_fp16;
using offload::fp16_to_float;

uint32_t bits_of(float value) {
    return std::bit_cast<uint32_t>(value);
}

TEST(Elements, SplitMasterIsLosslessButForNan) {
    EXPECT_EQ(split_master(std::bit_cast<float>(0x3F80C000u)), (SplitMaster{0x3F81, 0xC000}));
    EXPECT_EQ(split_master(1.0f), (SplitMaster{0x3F80, 0}));
    EXPECT_EQ(split_master(std::bit_cast<float>(0x3F808000u)), (SplitMaster{0x3F81, 0x8000}));
    EXPECT_EQ(split_master(std::nanf("7")), (SplitMaster{0x7FC0, 0}));
    EXPECT_EQ(bits_of(join_master({0x7FC0, 0})), 0x7FC00000u);
    constexpr uint32_t prime_step = 65'521;  // visits every exponent and many halves
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += prime_step) {
        const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
        if (std::isnan(value)) continue;
        ASSERT_EQ(bits_of(join_master(split_master(value))), bits);
    }
    for (const float value :
         {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::max(),
          -std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()}) {
        EXPECT_EQ(bits_of(join_master(split_master(value))), bits_of(value));
    }
}

TEST(Elements, EveryHalfSurvivesTheWayThere) {
    for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
        const float value = fp16_to_float(static_cast<uint16_t>(bits));
        const bool is_nan = (bits & 0x7FFFu) > 0x7C00u;
        ASSERT_EQ(std::isnan(value), is_nan) << bits;
        if (is_nan) {
            ASSERT_EQ(float_to_fp16(value), (bits & 0x8000u) | 0x7E00u);
        } else {
            ASSERT_EQ(float_to_fp16(value), bits);
        }
    }
    EXPECT_EQ(fp16_to_float(0x3C00), 1.0f);
    EXPECT_EQ(fp16_to_float(0xC248), -3.140625f);
    EXPECT_EQ(fp16_to_float(0x0001), 0x1p-24f);
    EXPECT_EQ(fp16_to_float(0x7BFF), 65504.0f);
}

TEST(Elements, HalvesAreRoundedToTheNearestTiesToEven) {
    for (uint32_t low = 0; low < 0x7BFF; ++low) {
        const uint32_t high = low + 1;
        const float below = fp16_to_float(static_cast<uint16_t>(low));
        const float above = fp16_to_float(static_cast<uint16_t>(high));
        const float middle = below + (above - below) / 2;  // exact
        ASSERT_EQ(float_to_fp16(middle), low % 2 == 0 ? low : high);
        ASSERT_EQ(float_to_fp16(std::nextafter(middle, 0.0f)), low);
        ASSERT_EQ(float_to_fp16(std::nextafter(middle, HUGE_VALF)), high);
        ASSERT_EQ(float_to_fp16(-middle), 0x8000u | (low % 2 == 0 ? low : high));
    }
    EXPECT_EQ(float_to_fp16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
    EXPECT_EQ(float_to_fp16(65520.0f), 0x7C00);
    EXPECT_EQ(float_to_fp16(-HUGE_VALF), 0xFC00);
}

// Every pair of dtypes, at an odd address, with and without the lower half.
TEST(Elements, ConvertsBetweenAllPairs) {
    const std::vector<float> values = {0.0f, -0.0f, 1.0f, -2.5f, 0.0078125f, 1000.0f, HUGE_VALF};
    for (const Dtype source : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
        std::vector<std::byte> stored(1 + offload::bytes_of(source, values.size()));
        for (size_t i = 0; i < values.size(); ++i) {
            const uint16_t half =
                source == Dtype::fp16 ? float_to_fp16(values[i]) : split_master(values[i]).hi;
            std::byte* const place = stored.data() + 1 + offload::bytes_of(source, i);
            if (source == Dtype::fp32) {
                std::memcpy(place, &values[i], sizeof(float));
            } else {
                std::memcpy(place, &half, sizeof half);
            }
        }
        const std::span<const std::byte> bytes = std::span(stored).subspan(1);
        std::vector<float> wide(values.size());
        std::vector<uint16_t> half(values.size()), hi(values.size()), lo(values.size(), 7);
        convert_elements(source, bytes, {Dtype::fp32, std::as_writable_bytes(std::span(wide)), {}});
        convert_elements(source, bytes, {Dtype::fp16, std::as_writable_bytes(std::span(half)), {}});
        convert_elements(source, bytes, {Dtype::bf16, std::as_writable_bytes(std::span(hi)), lo});
        for (size_t i = 0; i < values.size(); ++i) {
            EXPECT_EQ(bits_of(wide[i]), bits_of(values[i]));
            EXPECT_EQ(half[i], float_to_fp16(values[i]));
            EXPECT_EQ((SplitMaster{hi[i], lo[i]}), split_master(values[i]));
        }
    }
}

TEST(Elements, MasterFromFp32IsExactAndFromBf16HasNoLowerHalf) {
    const float exact = 0.1f;
    uint16_t hi = 0, lo = 0;
    const auto target = [&] {
        return ElementTarget{Dtype::bf16, std::as_writable_bytes(std::span(&hi, 1)),
                             std::span(&lo, 1)};
    };
    convert_elements(Dtype::fp32, std::as_bytes(std::span(&exact, 1)), target());
    EXPECT_EQ(join_master({hi, lo}), exact);
    EXPECT_NE(lo, 0);
    const uint16_t coarse = hi;
    convert_elements(Dtype::bf16, std::as_bytes(std::span(&coarse, 1)), target());
    EXPECT_EQ(hi, coarse);
    EXPECT_EQ(lo, 0);
}

// An fp16 weight keeps the source beside it, whatever it was.
TEST(Elements, MasterOfFp16IsTheSource) {
    const std::vector<float> values = {0.1f, -65519.0f, 1e-7f, 0.0f};
    for (const Dtype source : {Dtype::fp32, Dtype::fp16}) {
        std::vector<uint16_t> weights(values.size());
        std::vector<float> master(values.size(), 7);
        ElementTarget target{Dtype::fp16, std::as_writable_bytes(std::span(weights)), {}};
        target.master = master;
        std::vector<uint16_t> halves;
        for (const float value : values) halves.push_back(float_to_fp16(value));
        convert_elements(source,
                         source == Dtype::fp32 ? std::as_bytes(std::span(values))
                                               : std::as_bytes(std::span(halves)),
                         target);
        for (size_t i = 0; i < values.size(); ++i) {
            EXPECT_EQ(weights[i], halves[i]);
            EXPECT_EQ(master[i], source == Dtype::fp32 ? values[i] : fp16_to_float(halves[i]));
        }
        const ElementTarget piece = target.piece(1, 2);
        EXPECT_EQ(piece.master.data(), master.data() + 1);
        EXPECT_EQ(piece.master.size(), 2u);
    }
}

TEST(ElementsDeathTest, LowerHalvesBelongToBf16) {
    float value = 0;
    uint16_t lo = 0;
    const ElementTarget target{Dtype::fp32, std::as_writable_bytes(std::span(&value, 1)),
                               std::span(&lo, 1)};
    const float source = 1;
    EXPECT_DEATH(convert_elements(Dtype::fp32, std::as_bytes(std::span(&source, 1)), target),
                 "CHECK failed");
}

}  // namespace
}  // namespace headrace::engine
