// How the moments are kept in fewer bits than the fp32 they are computed in.
//
// Why at random. v changes by a thousandth of itself per step (beta2 = 0.999), its root by half of
// that: 0.13 of an int8 step at the top of a block, 0.13 of a bf16 step (2^-8) for v. Rounding to
// nearest would leave both as they are for ever. Rounded up with the probability that is the part
// cut off, the stored value is right on average over the random bits, and small changes arrive.
//
// Random bits. Each element has 32 per step, a hash of (seed, Adam step, layer, element of the
// layer's flat run); so they depend on no cut, thread or instruction set. `first` and `second`
// are the halves of a 64-bit mix of the first three; then, in 32-bit arithmetic,
//
//   x = element + first                        the low 32 bits of its number
//   x = (x ^ x >> 16) * 0x7FEB352D
//   x = ((x ^ x >> 15) + second) * 0x846CA68B
//   x = x ^ x >> 16                            m takes x & 0xFFFF, v takes x >> 16
//
// 16 bits are enough: bf16 cuts off exactly 16, so its probabilities are exact; in int8 the part
// cut off is taken in 2^-16 of a step. Elements 2^32 apart share their bits, which biases neither.
//
// bf16: (bits + random) >> 16 of the fp32 bits. Error of one store: less than the bf16 step, 2^-7
// of the value; below 2^-126, 2^-133.
//
// int8: blocks of 32 elements of the flat run (tensors begin at multiples of 32 and parts at
// multiples of 2048, so a block lies in one tensor and one part). Per block two steps, bf16:
//
//   step of m     the largest |m| * (1/127), rounded up to bf16;  m    = int8 * step
//   step of root  the largest sqrt(v) * (1/255), rounded up;      root = uint8 * step, v = root^2
//
// Reading is exact but for the square. Storing: t = nearest(65536 * (value / step)) in fp32
// operations value * (65536 / step), then (t + random) >> 16, at most 127 or 255. Error of one
// store: less than a step, which is below 1/126 of the block's largest |m|, and below 1/253 of its
// largest root. A root that is not 0 is stored as at least 1 step, or m / root could become as
// large as m / epsilon. A block of zeros has the step 0; otherwise a step is at least 2^-100, so
// that 65536 / step is finite. Where an m or v of the block is not finite its step is the NaN
// 0x7FC0, and then all the block's are read back as NaN.
//
// Pure functions, compiled once, for the scalar row and for conversions. The vector rows do the
// same (cpu_adam/adamw_vector.h) and are held to these bits.
#pragma once

#include <cstdint>
#include <span>

#include "cpu_adam/adamw.h"

namespace headrace::cpu_adam {

// What the random bits of a run depend on beside its steps.
struct RoundingKey {
    uint64_t seed = 0;
    uint32_t layer = 0;
};

RoundingBits rounding_bits(const RoundingKey& key, uint64_t adam_step);

// The 32 bits of an element.
uint32_t random_bits(const RoundingBits& bits, uint64_t element);

// In place of random bits: rounds to nearest.
inline constexpr uint32_t nearest_bits = 0x80008000u;

// random_16 < 2^16. A NaN becomes 0x7FC0.
uint16_t to_bf16(float value, uint32_t random_16);

// One block, or a shorter one at the end of a layer: as many m, v and random bits as elements.
struct BlockInt8 {
    std::span<int8_t> m;
    std::span<uint8_t> root;
    std::span<uint16_t, 2> steps;  // of m, of root
};
void store_block(std::span<const float> m, std::span<const float> v,
                 std::span<const uint32_t> random, const BlockInt8& block);
float load_m(int8_t m, uint16_t step);
float load_v(uint8_t root, uint16_t step);

}  // namespace headrace::cpu_adam
