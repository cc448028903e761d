// A call whose moments are kept in int8, or in anything where there are 16 registers; included as
// cpu_adam/adamw_block.h is. A chunk of blocks is gone through in four stages, each over all its
// blocks, with what they hand on in the nearest cache:
//
//   move      from what is kept to the new m and v
//   root      sqrt(v); the largest m and root of a block (int8); random bits (bf16, int8)
//   divide    m / d; m and v, or root, are rounded and stored
//   weight    the new weight is split and stored
//
// A root, a division and all that leads to them are a chain of some 90 cycles, and the registers
// of a core hold the results of about one block of it: in one stage nothing overlaps but the
// vectors of a block; in four short ones several blocks do. Only int8 has work enough for four,
// where its steps are made: else the first two go together, and the last two. One core of an AMD
// Zen 3, data in cache, Gparam/s, in one stage and in these: fp32 1.5 and 1.85, bf16 1.2 and 1.5,
// int8 0.68 and 1.14.
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
constexpr uint64_t chunk_elements = chunk_blocks<Way>* block_elements;
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

// The second stage. Returns the numbers of the next block.
template <typename Way>
Ints take_roots(const Constants& c, Ints numbers, Block* block) {
    for (uint64_t j = 0; j < block_couples; ++j) {
        for (uint64_t k = 0; k < 2; ++k) {
            block->root[j][k] = square_root(block->moved[j].v[k]);
            block->random[j][k] = random_bits(Way::Order::numbers_at(numbers, k), c.random_second);
        }
        numbers = numbers + ints(couple_elements);
    }
    return numbers;
}

void divide(const Constants& c, Block* block) {
    for (uint64_t j = 0; j < block_couples; ++j) {
        for (uint64_t k = 0; k < 2; ++k) {
            block->quotient[j][k] = block->moved[j].m[k] / divisor(c, block->root[j][k]);
        }
    }
}

template <typename Way, Nans nans>
void store_block_steps(const Operands& o, const Extent& extent, uint64_t b, const Chunk& chunk) {
    const Block& block = chunk.blocks[b];
    const Steps inverses = steps_of(chunk.inverses, b);
    Ints m[block_couples][2], root[block_couples][2];
    for (uint64_t j = 0; j < block_couples; ++j) {
        for (uint64_t k = 0; k < 2; ++k) {
            const Ints random = block.random[j][k];
            m[j][k] = in_steps(block.moved[j].m[k], inverses.m, bits_for_m(random));
            root[j][k] =
                root_in_steps(stored<nans>(block.root[j][k]), inverses.root, bits_for_v(random));
        }
    }
    Way::Order::store_steps(o, extent.at(b), m, root);
}

template <typename Way, Nans nans>
void store_block_moments(const Constants& c, const Operands& o, const Extent& extent, uint64_t b,
                         Ints numbers, const Chunk& chunk) {
    if constexpr (!Way::all) return;
    if constexpr (in_four<Way>) {
        return store_block_steps<Way, nans>(o, extent, b, chunk);
    }
    for (uint64_t j = 0; j < block_couples; ++j) {
        const Moved& moved = chunk.blocks[b].moved[j];
        Way::Order::template store_moments<Way, nans>(c, o, extent.at(b) + j * couple_elements,
                                                      numbers, moved.m, moved.v);
        numbers = numbers + ints(couple_elements);
    }
}

// The last stage. Returns where a weight is a NaN: where m or v is one, so is the new weight, and
// this is all that a chunk without NaNs pays for them.
template <typename Way, Nans nans>
Mask store_block_weights(const Constants& c, const Operands& o, uint64_t first,
                         const Block& block) {
    Mask found = no_lane();
    for (uint64_t j = 0; j < block_couples; ++j) {
        Floats weights[2];
        for (uint64_t k = 0; k < 2; ++k) {
            const Floats quotient = in_four<Way>
                                        ? block.quotient[j][k]
                                        : block.moved[j].m[k] / divisor(c, block.root[j][k]);
            weights[k] = new_weight(c, block.moved[j].weight[k], quotient);
        }
        Way::Order::template store_weights<Way, nans>(o, first + j * couple_elements, weights);
        found = found | nan_in_either(weights[0], weights[1]);
    }
    return found;
}

// What is stored, once more.
template <typename Way>
[[gnu::flatten, gnu::noinline]] void store_one_nan(const Constants& c, const Operands& o,
                                                   const Extent& extent, Ints numbers,
                                                   const Chunk& chunk) {
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        store_block_moments<Way, Nans::one>(c, o, extent, b, numbers, chunk);
        store_block_weights<Way, Nans::one>(c, o, extent.at(b), chunk.blocks[b]);
        numbers = numbers + ints(block_elements);
    }
}

// The first stage, and the second where the two go together.
template <typename Way>
void move_block(const Constants& c, const Operands& o, uint64_t first, const Steps& steps,
                Block* block) {
    for (uint64_t j = 0; j < block_couples; ++j) {
        const uint64_t i = first + j * couple_elements;
        Moved moved;
        Way::Order::template move<Way>(c, o, i, steps, &moved);
        for (uint64_t k = 0; k < 2; ++k) {
            block->moved[j].weight[k] = moved.weight[k];
            block->moved[j].m[k] = moved.m[k];
            block->moved[j].v[k] = moved.v[k];
            if constexpr (!in_four<Way>) {
                block->root[j][k] = square_root(moved.v[k]);
            }
        }
    }
}

// The stages one by one: int8, where its steps are made.
template <typename Way>
Mask update_in_four(const Constants& c, const Operands& o, const Extent& extent, Ints numbers,
                    Chunk* chunk) {
    load_steps(o, extent, chunk);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        move_block<Way>(c, o, extent.at(b), steps_of(chunk->old_steps, b), &chunk->blocks[b]);
    }
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        prefetch_weights_and_gradients<Way, chunk_elements<Way>>(o, extent.at(b));
        numbers = take_roots<Way>(c, numbers, &chunk->blocks[b]);
        keep_largest(chunk->blocks[b], chunk->largest + 2 * b);
    }
    store_new_steps(o, extent, chunk);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        prefetch_moments<Way, chunk_elements<Way>>(o, extent.at(b));
        divide(c, &chunk->blocks[b]);
        store_block_moments<Way, Nans::any>(c, o, extent, b, numbers, *chunk);
    }
    Mask nans = no_lane();
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        nans = nans | store_block_weights<Way, Nans::any>(c, o, extent.at(b), chunk->blocks[b]);
    }
    return nans;
}

// The first two together, and the last two.
template <typename Way>
Mask update_in_two(const Constants& c, const Operands& o, const Extent& extent, Ints numbers,
                   Chunk* chunk) {
    if constexpr (Way::moments == Kept::int8) load_steps(o, extent, chunk);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        const Steps steps = Way::moments == Kept::int8 ? steps_of(chunk->old_steps, b) : no_steps();
        move_block<Way>(c, o, extent.at(b), steps, &chunk->blocks[b]);
    }
    Mask nans = no_lane();
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        prefetch_weights_and_gradients<Way, chunk_elements<Way>>(o, extent.at(b));
        prefetch_moments<Way, chunk_elements<Way>>(o, extent.at(b));
        nans = nans | store_block_weights<Way, Nans::any>(c, o, extent.at(b), chunk->blocks[b]);
        store_block_moments<Way, Nans::any>(c, o, extent, b, numbers, *chunk);
        numbers = numbers + ints(block_elements);
    }
    return nans;
}

template <typename Way>
void update_in_chunks(const Constants& c, const Operands& o, uint64_t element_count) {
    Chunk chunk;
    Ints numbers = Way::Order::first_numbers(c);
    for (uint64_t first = 0; first < element_count; first += chunk_elements<Way>) {
        const uint64_t left = element_count - first;
        const Extent extent = {
            .first = first,
            .block_count =
                (left < chunk_elements<Way> ? left : chunk_elements<Way>) / block_elements};
        Mask nans;
        if constexpr (in_four<Way>) {
            nans = update_in_four<Way>(c, o, extent, numbers, &chunk);
        } else {
            nans = update_in_two<Way>(c, o, extent, numbers, &chunk);
        }
        if (seldom(any(nans))) store_one_nan<Way>(c, o, extent, numbers, chunk);
        numbers = numbers + ints(chunk_elements<Way>);
    }
}

}  // namespace

}  // namespace headrace::cpu_adam
