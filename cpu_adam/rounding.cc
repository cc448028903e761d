#include "cpu_adam/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "offload/check.h"
#include "offload/dtype.h"

namespace headrace::cpu_adam {

using offload::bf16_to_float;

namespace {

constexpr uint32_t infinity_bits = 0x7F800000;

// The finalizer of splitmix64.
uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

// The largest of the bits of magnitudes: that of a NaN is above all others.
uint32_t largest_bits(std::span<const float> values) {
    uint32_t largest = 0;
    for (const float value : values) {
        largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu);
    }
    return largest;
}

uint16_t step_of(uint32_t largest, float levels_inverse) {
    if (largest == 0) return 0;
    if (largest >= infinity_bits) return 0x7FC0;
    const float step = std::max(std::bit_cast<float>(largest) * levels_inverse, 0x1p-100f);
    return static_cast<uint16_t>((std::bit_cast<uint32_t>(step) + 0xFFFFu) >> 16);
}

float inverse_of(uint16_t step) {
    return step == 0 ? 0.0f : 65536.0f / bf16_to_float(step);
}

// As x86 does: what is no int32 becomes the smallest.
int32_t nearest(float value) {
    if (!(std::fabs(value) < 0x1p31f)) return std::numeric_limits<int32_t>::min();
    return static_cast<int32_t>(std::nearbyint(value));
}

int32_t in_steps(float value, float inverse, uint32_t random_16) {
    return (nearest(value * inverse) + static_cast<int32_t>(random_16)) >> 16;
}

}  // namespace

RoundingBits rounding_bits(const RoundingKey& key, uint64_t adam_step) {
    const uint64_t mixed = mix(mix(mix(key.seed) + adam_step) + key.layer);
    return {.first = static_cast<uint32_t>(mixed), .second = static_cast<uint32_t>(mixed >> 32)};
}

uint32_t random_bits(const RoundingBits& bits, uint64_t element) {
    uint32_t x = static_cast<uint32_t>(element) + bits.first;
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = ((x ^ x >> 15) + bits.second) * 0x846CA68Bu;
    return x ^ x >> 16;
}

uint16_t to_bf16(float value, uint32_t random_16) {
    DCHECK(random_16 < 0x10000u);
    if (std::isnan(value)) return 0x7FC0;
    return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + random_16) >> 16);
}

void store_block(std::span<const float> m, std::span<const float> v,
                 std::span<const uint32_t> random, const BlockInt8& block) {
    const size_t element_count = m.size();
    CHECK_EQ(v.size(), element_count);
    CHECK_EQ(random.size(), element_count);
    CHECK_EQ(block.m.size(), element_count);
    CHECK_EQ(block.root.size(), element_count);
    const float largest_root = std::sqrt(std::bit_cast<float>(largest_bits(v)));
    block.steps[0] = step_of(largest_bits(m), 1.0f / 127);
    block.steps[1] = step_of(std::bit_cast<uint32_t>(largest_root), 1.0f / 255);
    const float m_inverse = inverse_of(block.steps[0]);
    const float root_inverse = inverse_of(block.steps[1]);
    for (size_t i = 0; i < element_count; ++i) {
        const int32_t m_steps = in_steps(m[i], m_inverse, random[i] & 0xFFFFu);
        block.m[i] = static_cast<int8_t>(std::clamp(m_steps, -128, 127));
        const int32_t root_steps = in_steps(std::sqrt(v[i]), root_inverse, random[i] >> 16);
        const int32_t root_steps_min = v[i] == 0 ? 0 : 1;
        block.root[i] = static_cast<uint8_t>(std::clamp(root_steps, root_steps_min, 255));
    }
}

float load_m(int8_t m, uint16_t step) {
    return static_cast<float>(m) * bf16_to_float(step);
}

float load_v(uint8_t root, uint16_t step) {
    const float value = static_cast<float>(root) * bf16_to_float(step);
    return value * value;
}

}  // namespace headrace::cpu_adam
