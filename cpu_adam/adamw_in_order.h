// A couple's operands in and out, for every way of keeping them, the elements in their natural
// order; included as cpu_adam/adamw_block.h is.
#pragma once

#include "cpu_adam/adamw_block.h"

namespace headrace::cpu_adam {

namespace {

template <Kept gradient>
Floats load_gradient(const Operands& o, uint64_t i) {
    if constexpr (gradient == Kept::fp32) return load_fp32(o.gradient_fp32 + i);
    if constexpr (gradient == Kept::bf16) return as_floats(left<16>(load_16(o.gradient_bf16 + i)));
    if constexpr (gradient == Kept::fp16) return load_fp16(o.gradient_fp16 + i);
}

// hi and lo join as hi * 2^16 + lo, lo signed: the same as taking 1 from a hi that was rounded up.
template <Kept weight>
Floats load_weight(const Operands& o, uint64_t i) {
    if constexpr (weight != Kept::bf16) return load_fp32(o.weight + i);
    return as_floats(left<16>(load_16(o.hi + i)) + load_16_signed(o.lo + i));
}

template <Kept moments>
Moments load_moments(const Operands& o, uint64_t i, const Steps& steps) {
    if constexpr (moments == Kept::fp32) {
        return {.m = load_fp32(o.m + i), .v = load_fp32(o.v + i)};
    } else if constexpr (moments == Kept::bf16) {
        return {.m = as_floats(left<16>(load_16(o.m_bf16 + i))),
                .v = as_floats(left<16>(load_16(o.v_bf16 + i)))};
    } else {
        const Floats root = to_floats(load_u8(o.root_uint8 + i)) * steps.root;
        return {.m = to_floats(load_s8(o.m_int8 + i)) * steps.m, .v = root * root};
    }
}

struct InOrder {
    // Of the call's first vector, for random bits.
    static Ints first_numbers(const Constants& c) { return c.random_first; }
    // Of the couple's vector k, from those of its first.
    static Ints numbers_at(Ints numbers, uint64_t k) {
        return numbers + ints(static_cast<uint32_t>(k * lanes));
    }

    template <typename Way>
    static void move(const Constants& c, const Operands& o, uint64_t first, const Steps& steps,
                     Moved* moved) {
        for (uint64_t k = 0; k < 2; ++k) {
            const uint64_t i = first + k * lanes;
            moved->weight[k] = load_weight<Way::weight>(o, i);
            const Moments now = new_moments(c, moved->weight[k], load_gradient<Way::gradient>(o, i),
                                            load_moments<Way::moments>(o, i, steps));
            moved->m[k] = now.m;
            moved->v[k] = now.v;
        }
    }

    // fp32 and bf16.
    template <typename Way, Nans nans>
    static void store_moments(const Constants& c, const Operands& o, uint64_t first, Ints numbers,
                              const Floats (&m)[2], const Floats (&v)[2]) {
        static_assert(Way::moments != Kept::int8);
        if constexpr (Way::moments == Kept::fp32) {
            for (uint64_t k = 0; k < 2; ++k) {
                store_fp32(o.m + first + k * lanes, stored<nans>(m[k]));
                store_fp32(o.v + first + k * lanes, stored<nans>(v[k]));
            }
            return;
        }
        Ints m_bits[2], v_bits[2];
        for (uint64_t k = 0; k < 2; ++k) {
            const Ints random = random_bits(numbers_at(numbers, k), c.random_second);
            m_bits[k] = right<16>(as_ints(stored<nans>(m[k])) + bits_for_m(random));
            v_bits[k] = right<16>(as_ints(stored<nans>(v[k])) + bits_for_v(random));
        }
        store_couple_16(o.m_bf16 + first, m_bits[0], m_bits[1]);
        store_couple_16(o.v_bf16 + first, v_bits[0], v_bits[1]);
    }

    // int8, a block, in units of 2^-16 of a step.
    static void store_steps(const Operands& o, uint64_t first, const Ints (&m)[block_couples][2],
                            const Ints (&root)[block_couples][2]) {
        for (uint64_t j = 0; j < block_couples; ++j) {
            const uint64_t i = first + j * couple_elements;
            store_couple_s8(o.m_int8 + i, right_signed<16>(m[j][0]), right_signed<16>(m[j][1]));
            store_couple_u8(o.root_uint8 + i, right_signed<16>(root[j][0]),
                            right_signed<16>(root[j][1]));
        }
    }

    template <typename Way, Nans nans>
    static void store_weights(const Operands& o, uint64_t first, const Floats (&weights)[2]) {
        if constexpr (Way::weight == Kept::bf16) {
            Ints hi[2], lo[2];
            for (uint64_t k = 0; k < 2; ++k) {
                const Ints bits = as_ints(stored<nans>(weights[k]));
                hi[k] = right<16>(bits + ints(0x8000u));
                lo[k] = low_16(bits);
            }
            store_couple_16(o.hi + first, hi[0], hi[1]);
            if constexpr (Way::all) store_couple_16(o.lo + first, lo[0], lo[1]);
            return;
        }
        for (uint64_t k = 0; k < 2; ++k) {
            const uint64_t i = first + k * lanes;
            const Floats weight = stored<nans>(weights[k]);
            if constexpr (Way::weight == Kept::fp16) store_fp16(o.weight_fp16 + i, weight);
            if constexpr (Way::weight == Kept::fp32 || Way::all) store_fp32(o.weight + i, weight);
        }
    }
};

}  // namespace

}  // namespace headrace::cpu_adam
