// A couple's operands in and out where weight and gradient are kept in bf16 and moments in bf16 or
// int8; included as cpu_adam/adamw_block.h is. A 32-bit lane holds two elements of each array of 16
// bits: the even ones make one vector of floats and the odd ones another, with a shift or a mask
// each, where the natural order takes a shuffle on the way in and two on the way out. The rule
// works on each element alone, so the bits are the same.
#pragma once

#include "cpu_adam/adamw_block.h"

namespace headrace::cpu_adam {

namespace {

Floats even(Ints pairs) {
    return as_floats(left<16>(pairs));
}
Floats odd(Ints pairs) {
    return as_floats(pairs & ints(0xFFFF0000u));
}

template <Kept moments>
void load_moments_in_pairs(const Operands& o, uint64_t i, const Steps& steps, Moments (&old)[2]) {
    if constexpr (moments == Kept::bf16) {
        const Ints m = load_pairs(o.m_bf16 + i), v = load_pairs(o.v_bf16 + i);
        old[0] = {.m = even(m), .v = even(v)};
        old[1] = {.m = odd(m), .v = odd(v)};
        return;
    }
    const Ints m = load_pairs_s8(o.m_int8 + i), root = load_pairs_u8(o.root_uint8 + i);
    const Floats root_even = to_floats(low_16(root)) * steps.root;
    const Floats root_odd = to_floats(upper_signed(root)) * steps.root;
    old[0] = {.m = to_floats(lower_signed(m)) * steps.m, .v = root_even * root_even};
    old[1] = {.m = to_floats(upper_signed(m)) * steps.m, .v = root_odd * root_odd};
}

// What InOrder has (cpu_adam/adamw_in_order.h). A couple is a vector of pairs.
struct InPairs {
    static Ints first_numbers(const Constants& c) { return c.random_first + lane_numbers(); }
    static Ints numbers_at(Ints numbers, uint64_t k) {
        return numbers + ints(static_cast<uint32_t>(k));
    }

    template <typename Way>
    static void move(const Constants& c, const Operands& o, uint64_t first, const Steps& steps,
                     Moved* moved) {
        static_assert(Way::weight == Kept::bf16 && Way::gradient == Kept::bf16);
        const Ints hi = load_pairs(o.hi + first), lo = load_pairs(o.lo + first);
        const Ints gradient = load_pairs(o.gradient_bf16 + first);
        const Floats weight[2] = {as_floats(left<16>(hi) + lower_signed(lo)),
                                  as_floats(as_ints(odd(hi)) + upper_signed(lo))};
        Moments old[2];
        load_moments_in_pairs<Way::moments>(o, first, steps, old);
        const Moments now[2] = {new_moments(c, weight[0], even(gradient), old[0]),
                                new_moments(c, weight[1], odd(gradient), old[1])};
        for (uint64_t k = 0; k < 2; ++k) {
            moved->weight[k] = weight[k];
            moved->m[k] = now[k].m;
            moved->v[k] = now[k].v;
        }
    }

    template <typename Way, Nans nans>
    static void store_moments(const Constants& c, const Operands& o, uint64_t first, Ints numbers,
                              const Floats (&m)[2], const Floats (&v)[2]) {
        static_assert(Way::moments == Kept::bf16);
        Ints m_bits[2], v_bits[2];
        for (uint64_t k = 0; k < 2; ++k) {
            const Ints random = random_bits(numbers_at(numbers, k), c.random_second);
            m_bits[k] = as_ints(stored<nans>(m[k])) + bits_for_m(random);
            v_bits[k] = as_ints(stored<nans>(v[k])) + bits_for_v(random);
        }
        store_pairs(o.m_bf16 + first, upper_halves_of(m_bits[0], m_bits[1]));
        store_pairs(o.v_bf16 + first, upper_halves_of(v_bits[0], v_bits[1]));
    }

    static void store_steps(const Operands& o, uint64_t first, const Ints (&m)[block_couples][2],
                            const Ints (&root)[block_couples][2]) {
        Ints m_pairs[block_couples], root_pairs[block_couples];
        for (uint64_t j = 0; j < block_couples; ++j) {
            m_pairs[j] = upper_halves_of(m[j][0], m[j][1]);
            root_pairs[j] = upper_halves_of(root[j][0], root[j][1]);
        }
        store_pairs_s8(o.m_int8 + first, m_pairs);
        store_pairs_u8(o.root_uint8 + first, root_pairs);
    }

    template <typename Way, Nans nans>
    static void store_weights(const Operands& o, uint64_t first, const Floats (&weights)[2]) {
        const Ints w_even = as_ints(stored<nans>(weights[0]));
        const Ints w_odd = as_ints(stored<nans>(weights[1]));
        const Ints half = ints(0x8000u);
        store_pairs(o.hi + first, upper_halves_of(w_even + half, w_odd + half));
        if constexpr (Way::all) store_pairs(o.lo + first, lower_halves_of(w_even, w_odd));
    }
};

}  // namespace

}  // namespace headrace::cpu_adam
