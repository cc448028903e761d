// A call whose moments are kept in int8, or in anything where there are 16 registers; included as
// cpu_adam/adamw_block.h is. A chunk of blocks is gone through in four stages, each over all its
// blocks, with what they hand on in the nearest cache:
//
//   move      from what is kept to the new m and v
//   root      sqrt(v); the largest m and root of a block (int8); random bits (int8)
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

#include "cpu_adam/adamw_chunk.h"

namespace headrace::cpu_adam {

namespace {

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
    static_assert(in_four<Way>);
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
    if constexpr (in_four<Way>) {
        store_block_steps<Way, nans>(o, extent, b, chunk);
    } else if constexpr (Way::all) {
        for (uint64_t j = 0; j < block_couples; ++j) {
            const uint64_t i = extent.at(b) + j * couple_elements;
            const Moved& moved = chunk.blocks[b].moved[j];
            Way::Order::template store_moments<Way, nans>(c, o, i, numbers, moved.m, moved.v);
            numbers = numbers + ints(couple_elements);
        }
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
        prefetch_weights_and_gradients<Way, NextChunk<Way>>(o, extent.at(b));
        numbers = take_roots<Way>(c, numbers, &chunk->blocks[b]);
        keep_largest(chunk->blocks[b], chunk->largest + 2 * b);
    }
    store_new_steps(o, extent, chunk);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        prefetch_moments<Way, NextChunk<Way>>(o, extent.at(b));
        divide(c, &chunk->blocks[b]);
        store_block_steps<Way, Nans::any>(o, extent, b, *chunk);
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
        prefetch_weights_and_gradients<Way, NextChunk<Way>>(o, extent.at(b));
        prefetch_moments<Way, NextChunk<Way>>(o, extent.at(b));
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
