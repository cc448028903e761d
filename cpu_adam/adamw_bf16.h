// A block whose weight, moments and gradient are all kept in bf16, by the rule of
// cpu_adam/adamw_vector.h; included as that is. A 32-bit lane holds two elements of each array: the
// even ones make one vector of floats and the odd ones another, with a shift or a mask each, where
// the natural order takes a shuffle on the way in and two on the way out. The rule works on each
// element alone, so the bits are the same; a fifth fewer instructions.
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

// Two vectors of one block, k and k + 1: the elements from i on.
void load_and_move(const Constants& c, const Operands& o, uint64_t i, uint64_t k, Block* block) {
    const Ints hi = load_pairs(o.hi + i), lo = load_pairs(o.lo + i);
    const Ints gradient = load_pairs(o.gradient_bf16 + i);
    const Ints m = load_pairs(o.m_bf16 + i), v = load_pairs(o.v_bf16 + i);
    block->weight[k] = as_floats(left<16>(hi) + right_signed<16>(left<16>(lo)));
    block->weight[k + 1] = as_floats(as_ints(odd(hi)) + right_signed<16>(lo));
    block->moments[k] =
        new_moments(c, block->weight[k], even(gradient), {.m = even(m), .v = even(v)});
    block->moments[k + 1] =
        new_moments(c, block->weight[k + 1], odd(gradient), {.m = odd(m), .v = odd(v)});
}

void round_and_store(const Constants& c, const Operands& o, uint64_t i, uint64_t k,
                     const Block& block) {
    const Ints w_even = as_ints(block.weight[k]), w_odd = as_ints(block.weight[k + 1]);
    const Ints half = ints(0x8000u);
    store_pairs(o.lo + i, lower_halves_of(w_even, w_odd));
    store_pairs(o.hi + i, upper_halves_of(w_even + half, w_odd + half));
    const Ints element = c.random_first + lane_numbers() + ints(static_cast<uint32_t>(i));
    const Ints r_even = random_bits(element, c.random_second);
    const Ints r_odd = random_bits(element + ints(1), c.random_second);
    const Moments &of_even = block.moments[k], &of_odd = block.moments[k + 1];
    store_pairs(o.m_bf16 + i, upper_halves_of(as_ints(of_even.m) + low_16(r_even),
                                              as_ints(of_odd.m) + low_16(r_odd)));
    store_pairs(o.v_bf16 + i, upper_halves_of(as_ints(of_even.v) + right<16>(r_even),
                                              as_ints(of_odd.v) + right<16>(r_odd)));
}

void update_block_bf16(const Constants& c, const Operands& o, uint64_t first) {
    Block block;
    for (uint64_t k = 0; k < block_vectors; k += 2) {
        load_and_move(c, o, first + k * lanes, k, &block);
    }
    for (uint64_t k = 0; k < block_vectors; ++k) {
        block.weight[k] = new_weight(c, block.weight[k], block.moments[k]);
    }
    if (has_nan(block)) make_one_nan(&block);
    for (uint64_t k = 0; k < block_vectors; k += 2) {
        round_and_store(c, o, first + k * lanes, k, block);
    }
}

}  // namespace

}  // namespace headrace::cpu_adam
