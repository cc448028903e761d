// The stages of a block (cpu_adam/adamw_chunk.h) whose weight and gradient are kept in bf16 and
// its moments in bf16 or int8; included as that is. A 32-bit lane holds two elements of each array
// of 16 bits: the even ones make one vector of floats and the odd ones another, with a shift or a
// mask each, where the natural order takes a shuffle on the way in and two on the way out. The rule
// works on each element alone, so the bits are the same.
#pragma once

#include "cpu_adam/adamw_blocks.h"

namespace headrace::cpu_adam {

namespace {

Floats even(Ints pairs) {
    return as_floats(left<16>(pairs));
}
Floats odd(Ints pairs) {
    return as_floats(pairs & ints(0xFFFF0000u));
}

template <Kept kept>
void load_moments_in_pairs(const Operands& o, uint64_t i, uint64_t b, const Chunk& chunk,
                           Moments (&old)[2]) {
    if constexpr (kept == Kept::bf16) {
        const Ints m = load_pairs(o.m_bf16 + i), v = load_pairs(o.v_bf16 + i);
        old[0] = {.m = even(m), .v = even(v)};
        old[1] = {.m = odd(m), .v = odd(v)};
        return;
    }
    const Floats m_step = floats(chunk.old_steps[2 * b]);
    const Floats root_step = floats(chunk.old_steps[2 * b + 1]);
    const Ints m = load_pairs_s8(o.m_int8 + i), root = load_pairs_u8(o.root_uint8 + i);
    const Floats root_even = to_floats(low_16(root)) * root_step;
    const Floats root_odd = to_floats(upper_signed(root)) * root_step;
    old[0] = {.m = to_floats(lower_signed(m)) * m_step, .v = root_even * root_even};
    old[1] = {.m = to_floats(upper_signed(m)) * m_step, .v = root_odd * root_odd};
}

template <Kept kept, Writes writes>
void move_block_in_pairs(const Constants& c, const Operands& o, uint64_t first, uint64_t b,
                         Chunk* chunk) {
    Block& block = chunk->blocks[b];
    for (uint64_t k = 0; k < block_vectors; k += 2) {
        const uint64_t i = first + k * lanes;
        const Ints hi = load_pairs(o.hi + i), lo = load_pairs(o.lo + i);
        const Ints gradient = load_pairs(o.gradient_bf16 + i);
        block.weight[k] = as_floats(left<16>(hi) + lower_signed(lo));
        block.weight[k + 1] = as_floats(as_ints(odd(hi)) + upper_signed(lo));
        Moments old[2];
        load_moments_in_pairs<kept>(o, i, b, *chunk, old);
        const Moments now[2] = {new_moments(c, block.weight[k], even(gradient), old[0]),
                                new_moments(c, block.weight[k + 1], odd(gradient), old[1])};
        for (uint64_t half = 0; half < 2; ++half) {
            keep_moments<kept, writes>(o, i, now[half], k + half, &block);
        }
    }
}

// Those of every second element from i on.
Ints random_bits_in_pairs(const Constants& c, uint64_t i) {
    const Ints element = c.random_first + lane_numbers() + ints(static_cast<uint32_t>(i));
    return random_bits(element, c.random_second);
}
void draw_random_bits_in_pairs(const Constants& c, uint64_t first, Block* block) {
    for (uint64_t k = 0; k < block_vectors; k += 2) {
        block->random[k] = random_bits_in_pairs(c, first + k * lanes);
        block->random[k + 1] = random_bits_in_pairs(c, first + k * lanes + 1);
    }
}

template <Kept kept, Nans nans>
void store_moments_in_pairs(const Constants& c, const Operands& o, uint64_t first, uint64_t b,
                            const Chunk& chunk) {
    const Block& block = chunk.blocks[b];
    Ints m[block_vectors / 2], v[block_vectors / 2];
    for (uint64_t k = 0; k < block_vectors; k += 2) {
        Ints m_bits[2], v_bits[2];
        for (uint64_t half = 0; half < 2; ++half) {
            const Ints random = kept == Kept::int8
                                    ? block.random[k + half]
                                    : random_bits_in_pairs(c, first + k * lanes + half);
            const Ints for_m = bits_for_m(random), for_v = bits_for_v(random);
            if constexpr (kept == Kept::bf16) {
                m_bits[half] = as_ints(stored<nans>(block.m[k + half])) + for_m;
                v_bits[half] = as_ints(stored<nans>(block.v[k + half])) + for_v;
            } else {
                m_bits[half] = in_steps(block.m[k + half], floats(chunk.inverses[2 * b]), for_m);
                v_bits[half] = root_in_steps(stored<nans>(block.root[k + half]),
                                             floats(chunk.inverses[2 * b + 1]), for_v);
            }
        }
        m[k / 2] = upper_halves_of(m_bits[0], m_bits[1]);
        v[k / 2] = upper_halves_of(v_bits[0], v_bits[1]);
    }
    if constexpr (kept == Kept::bf16) {
        for (uint64_t k = 0; k < block_vectors / 2; ++k) {
            store_pairs(o.m_bf16 + first + 2 * k * lanes, m[k]);
            store_pairs(o.v_bf16 + first + 2 * k * lanes, v[k]);
        }
    } else {
        store_pairs_s8(o.m_int8 + first, m);
        store_pairs_u8(o.root_uint8 + first, v);
    }
}

// Returns nans_of.
template <Kept kept, Writes writes, Nans nans>
Ints finish_weights_in_pairs(const Constants& c, const Operands& o, uint64_t first,
                             const Block& block) {
    Floats weights[block_vectors];
    new_weights<kept, writes>(c, o, first, block, weights);
    const Ints half = ints(0x8000u);
    for (uint64_t k = 0; k < block_vectors; k += 2) {
        const uint64_t i = first + k * lanes;
        const Ints w_even = as_ints(stored<nans>(weights[k]));
        const Ints w_odd = as_ints(stored<nans>(weights[k + 1]));
        store_pairs(o.hi + i, upper_halves_of(w_even + half, w_odd + half));
        if constexpr (writes == Writes::weight_and_state) {
            store_pairs(o.lo + i, lower_halves_of(w_even, w_odd));
        }
    }
    return nans_of(weights);
}

}  // namespace

}  // namespace headrace::cpu_adam
