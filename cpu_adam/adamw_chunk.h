// A chunk of blocks (cpu_adam/adamw_chunks.h): what its stages hand on, and the steps of int8, made
// for all its blocks at once; included as that is.
#pragma once

#include "cpu_adam/adamw_in_order.h"
#include "cpu_adam/adamw_in_pairs.h"

namespace headrace::cpu_adam {

namespace {

// Where memory is the limit, larger chunks ask for it in bursts: 8 blocks were the best of 4, 8 and
// 16. int8 is bound by its arithmetic, and makes the steps of 16 blocks at once.
constexpr uint64_t chunk_blocks_max = 16;
template <typename Way>
constexpr bool in_four = (Way::moments == Kept::int8) && Way::all;
template <typename Way>
constexpr uint64_t chunk_blocks = Way::moments == Kept::int8 ? chunk_blocks_max : 8;
// Memory is asked for a chunk ahead, and not in the first stage, which reads: int8 10% faster than
// there (AMD Zen 4).
template <typename Way>
constexpr uint64_t chunk_elements = block_elements* chunk_blocks<Way>;
template <typename Way>
using NextChunk = ElementsAhead<chunk_elements<Way>>;
constexpr uint64_t chunk_steps = 2 * chunk_blocks_max;  // of m and of root, by turns
constexpr uint64_t step_vectors = chunk_steps / lanes;
static_assert(step_vectors % 2 == 0);  // steps are stored as couples of 16 bits

// Of a block; `quotient` is m / d.
struct Block {
    Moved moved[block_couples];
    Floats root[block_couples][2], quotient[block_couples][2];
    Ints random[block_couples][2];
};

struct Chunk {
    Block blocks[chunk_blocks_max];
    // int8 alone: the steps that m and root are read with, as floats; the largest magnitudes among
    // the new ones, as bits; and 65536 / step for the new steps.
    float old_steps[chunk_steps];
    uint32_t largest[chunk_steps];
    float inverses[chunk_steps];
};
static_assert(sizeof(Chunk) <= 16384);  // half of the nearest cache; the operands have the rest

// The blocks of a chunk: from the call's element `first` on.
struct Extent {
    uint64_t first = 0;
    uint64_t block_count = 0;
    uint64_t at(uint64_t b) const { return first + b * block_elements; }
};

Steps steps_of(const float (&of_chunk)[chunk_steps], uint64_t b) {
    return {.m = floats(of_chunk[2 * b]), .root = floats(of_chunk[2 * b + 1])};
}

// The first of the steps of the blocks from element `first` on.
uint16_t* steps_at(const Operands& o, uint64_t first) {
    return o.steps + 2 * (first / block_elements);
}

void load_steps(const Operands& o, const Extent& extent, Chunk* chunk) {
    uint16_t some[chunk_steps] = {};
    const uint16_t* steps = steps_at(o, extent.first);
    if (extent.block_count < chunk_blocks_max) {
        for (uint64_t i = 0; i < 2 * extent.block_count; ++i) some[i] = steps[i];
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
void store_new_steps(const Operands& o, const Extent& extent, Chunk* chunk) {
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
    uint16_t some[chunk_steps];
    const bool is_whole = extent.block_count == chunk_blocks_max;
    uint16_t* const target = steps_at(o, extent.first);
    uint16_t* const whole = is_whole ? target : some;
    for (uint64_t j = 0; j < step_vectors; j += 2) {
        store_couple_16(whole + j * lanes, steps[j], steps[j + 1]);
    }
    if (is_whole) return;
    for (uint64_t i = 0; i < 2 * extent.block_count; ++i) target[i] = some[i];
}

void keep_largest(const Block& block, uint32_t* target) {
    Ints m = ints(0), root = ints(0);
    for (uint64_t j = 0; j < block_couples; ++j) {
        for (uint64_t k = 0; k < 2; ++k) {
            m = larger(m, as_ints(block.moved[j].m[k]) & ints(0x7FFFFFFFu));
            root = larger_unsigned(root, as_ints(block.root[j][k]));
        }
    }
    store_largest(target, m, root);
}

}  // namespace

}  // namespace headrace::cpu_adam
