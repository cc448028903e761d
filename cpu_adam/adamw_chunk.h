// What a vector row computes at a time: a chunk of blocks of 32 elements, the block of int8, by the
// rule of cpu_adam/adamw_vector.h; included as that is. A chunk is gone through in four stages,
// each over all its blocks, with what they hand on in the nearest cache:
//
//   move      from what is kept to the new m and v
//   root      sqrt(v); the largest m and root of a block (int8); random bits (bf16, int8)
//   divide    m / d; m and v, or root, are rounded and stored
//   weight    the new weight is split and stored
//
// A root, a division and all that leads to them are a chain of some 90 cycles, and the registers
// of a core hold the results of about one block of it: in one stage nothing overlaps but the
// vectors of a block; in four short ones several blocks do. Only int8 has work enough for four:
// else the first two go together, and the last two. One core of an AMD Zen 3, data in cache,
// Gparam/s, in one stage and in these: fp32 1.5 and 1.85, bf16 1.2 and 1.5, int8 0.68 and 1.14.
#pragma once

#include "cpu_adam/adamw_vector.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t block_elements = 32;
constexpr uint64_t block_vectors = block_elements / lanes;
// Where memory is the limit, larger chunks ask for it in bursts: 8 blocks were the best of 4, 8 and
// 16.
// int8 is bound by its arithmetic, and makes the steps of 16 blocks at once.
constexpr uint64_t chunk_blocks = 8;
constexpr uint64_t chunk_blocks_max = 16;
constexpr uint64_t chunk_steps = 2 * chunk_blocks_max;  // int8: of m and of root, by turns
constexpr uint64_t step_vectors = chunk_steps / lanes;
static_assert(block_vectors % 2 == 0);                // pairs
static_assert(chunk_steps == block_elements);         // steps are stored as a block of 16 bits
static_assert(chunk_blocks_max % chunk_blocks == 0);  // a chunk of either size fits

// Of a block: the new m and v; the root of v; the old weight; and in int8 random bits and, in the
// place of v, m / d. Of moments kept in fp32 the new ones are in their own place.
struct Block {
    Floats m[block_vectors], v[block_vectors], root[block_vectors], weight[block_vectors];
    Ints random[block_vectors];
};

struct Chunk {
    Block blocks[chunk_blocks_max];
    // int8 alone: the steps that m and root are read with, as floats; the largest magnitudes among
    // the new ones, as bits; and 65536 / step for the new steps.
    float old_steps[chunk_steps];
    uint32_t largest[chunk_steps];
    float inverses[chunk_steps];
};

// All bits of the lanes where one of a block's new weights is a NaN. Where m or v is one so is the
// new weight, and this is all that a chunk without NaNs pays for them.
Ints nans_of(const Floats (&weight)[block_vectors]) {
    Ints nans = nan_in_either(weight[0], weight[1]);
    for (uint64_t k = 2; k < block_vectors; k += 2) {
        nans = nans | nan_in_either(weight[k], weight[k + 1]);
    }
    return nans;
}

// What is stored of NaNs: whatever they are, or the one. A chunk with NaNs is stored twice.
enum class Nans : uint8_t { any, one };

template <Nans nans>
Floats stored(Floats value) {
    return nans == Nans::one ? one_nan(value) : value;
}

// int8: the first of the steps of the blocks from element `first` on.
uint16_t* steps_at(const Operands& o, uint64_t first) {
    return o.steps + 2 * (first / block_elements);
}

void load_steps(const Operands& o, uint64_t first, uint64_t block_count, Chunk* chunk) {
    uint16_t some[chunk_steps] = {};
    const uint16_t* steps = steps_at(o, first);
    if (block_count < chunk_blocks_max) {
        for (uint64_t i = 0; i < 2 * block_count; ++i) some[i] = steps[i];
        steps = some;
    }
    for (uint64_t i = 0; i < chunk_steps; i += lanes) {
        store_fp32(chunk->old_steps + i, as_floats(left<16>(load_16(steps + i))));
    }
}

// All bits where the condition holds. The values are not negative.
Ints where_not_zero(Ints values) {
    return ints(0) - smaller(values, ints(1));
}
Ints where_not_finite(Ints values) {
    return right_signed<31>(values + ints(0x00800000u));
}

// The new steps of a chunk's blocks and their inverses, from the largest magnitudes, by
// cpu_adam/rounding.h: a vector of blocks at a time and without a branch.
void store_steps(const Operands& o, uint64_t first, uint64_t block_count, Chunk* chunk) {
    float levels_inverse[lanes];
    for (uint64_t i = 0; i < lanes; i += 2) {
        levels_inverse[i] = 1.0f / 127;
        levels_inverse[i + 1] = 1.0f / 255;
    }
    Ints steps[step_vectors];
    for (uint64_t j = 0; j < step_vectors; ++j) {
        // A root has a sign only where it is a NaN.
        const Ints largest = load_32(chunk->largest + j * lanes) & ints(0x7FFFFFFFu);
        const Floats exact =
            larger(as_floats(largest) * load_fp32(levels_inverse), floats(0x1p-100f));
        const Ints rounded_up = (as_ints(exact) + ints(0xFFFFu)) & ints(0xFFFF0000u);
        const Ints not_zero = where_not_zero(largest);
        const Ints kept = rounded_up & not_zero;
        const Ints bits = kept ^ ((kept ^ ints(0x7FC00000u)) & where_not_finite(largest));
        const Ints inverse = as_ints(floats(65536.0f) / as_floats(bits)) & not_zero;
        store_fp32(chunk->inverses + j * lanes, as_floats(inverse));
        steps[j] = right<16>(bits);
    }
    uint16_t* const target = steps_at(o, first);
    if (block_count == chunk_blocks_max) return store_block_16(target, steps);
    uint16_t some[chunk_steps];
    store_block_16(some, steps);
    for (uint64_t i = 0; i < 2 * block_count; ++i) target[i] = some[i];
}

void keep_largest(const Block& block, uint64_t b, Chunk* chunk) {
    const Ints magnitude = ints(0x7FFFFFFFu);
    Ints m = as_ints(block.m[0]) & magnitude, root = as_ints(block.root[0]);
    for (uint64_t k = 1; k < block_vectors; ++k) {
        m = larger(m, as_ints(block.m[k]) & magnitude);
        root = larger_unsigned(root, as_ints(block.root[k]));
    }
    store_largest(chunk->largest + 2 * b, m, root);
}

// Whether the new moments go from the first stage to where they are kept, and not into the block.
template <Kept moments, Writes writes>
constexpr bool at_once = (moments == Kept::fp32) && (writes == Writes::weight_and_state);

// The first stage's results, of vector k of a block, the call's elements from i on; and of the
// second, where the two go together.
template <Kept moments, Writes writes>
void keep_moments(const Operands& o, uint64_t i, const Moments& now, uint64_t k, Block* block) {
    if constexpr (at_once<moments, writes>) {
        store_fp32(o.m + i, now.m);
        store_fp32(o.v + i, now.v);
    } else {
        block->m[k] = now.m;
        block->v[k] = now.v;
    }
    if constexpr (moments != Kept::int8) block->root[k] = square_root(now.v);
}

// The second stage, but for the random bits.
void take_roots(uint64_t b, Chunk* chunk) {
    Block& block = chunk->blocks[b];
    for (uint64_t k = 0; k < block_vectors; ++k) block.root[k] = square_root(block.v[k]);
    keep_largest(block, b, chunk);
}

// The third stage, but for what is stored.
void divide(const Constants& c, Block* block) {
    for (uint64_t k = 0; k < block_vectors; ++k) {
        block->v[k] = block->m[k] / divisor(c, block->root[k]);
    }
}

// Of the block whose first element is the call's `first`.
template <Kept moments, Writes writes>
void new_weights(const Constants& c, const Operands& o, uint64_t first, const Block& block,
                 Floats (&weights)[block_vectors]) {
    for (uint64_t k = 0; k < block_vectors; ++k) {
        Floats quotient = block.v[k];
        if constexpr (moments != Kept::int8) {
            const Floats m =
                at_once<moments, writes> ? load_fp32(o.m + first + k * lanes) : block.m[k];
            quotient = m / divisor(c, block.root[k]);
        }
        weights[k] = new_weight(c, block.weight[k], quotient);
    }
}

// In units of 2^-16 of a step, random bits added: the number of steps is the upper half.
Ints in_steps(Floats values, Floats inverse, Ints random_16) {
    return nearest(values * inverse) + random_16;
}
// A root that is not 0 keeps a step.
Ints root_in_steps(Floats root, Floats inverse, Ints random_16) {
    return larger(in_steps(root, inverse, random_16), smaller(as_ints(root), ints(0x10000u)));
}

}  // namespace

}  // namespace headrace::cpu_adam
