// Goal: splitting a master into hi and lo and joining them again loses nothing, for all 2^32 of
// them. Method: steps of learning rate 0 on the best row, which join, add nothing and split. Finite
// values come back; an infinite one is multiplied by a decay of 0 on the way, and is then the one
// NaN, as every NaN is. About a minute; see cpu_adam/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cpu_adam/variants.h"

namespace headrace::cpu_adam {

TEST(SplitMaster, round_trip_of_all_values) {
    constexpr uint64_t count = 1 << 18;
    const StepFactors factors = factors_of({.learning_rate = 0});
    std::vector<uint16_t> hi(count), lo(count);
    const std::vector<uint16_t> gradient(count);
    std::vector<float> m(count), v(count);
    for (uint64_t first = 0; first < uint64_t{1} << 32; first += count) {
        for (uint64_t i = 0; i < count; ++i) {
            const auto bits = static_cast<uint32_t>(first + i);
            hi[i] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
            lo[i] = static_cast<uint16_t>(bits);
        }
        best().update(factors, {.element_count = count,
                                .hi = hi.data(),
                                .lo = lo.data(),
                                .m = m.data(),
                                .v = v.data(),
                                .gradient_bf16 = gradient.data()});
        uint64_t wrong_count = 0;
        for (uint64_t i = 0; i < count; ++i) {
            const auto bits = static_cast<uint32_t>(first + i);
            const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
            const uint32_t expected = finite ? bits : 0x7FC00000u;
            const auto expected_hi = static_cast<uint16_t>((expected + 0x8000u) >> 16);
            wrong_count += hi[i] != expected_hi || lo[i] != static_cast<uint16_t>(expected);
        }
        ASSERT_EQ(wrong_count, 0u) << "masters from " << first;
        std::ranges::fill(m, 0.0f);  // a NaN stays in m and v
        std::ranges::fill(v, 0.0f);
    }
}

}  // namespace headrace::cpu_adam
