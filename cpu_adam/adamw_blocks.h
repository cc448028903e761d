// The stages of a block (cpu_adam/adamw_chunk.h) for every way of keeping its operands, the
// elements in their natural order; included as that is.
#pragma once

#include "cpu_adam/adamw_chunk.h"

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

template <Kept weight, Writes writes>
void store_weights(const Operands& o, uint64_t first, const Floats (&weight_of)[block_vectors]) {
    if constexpr (weight == Kept::bf16) {
        Ints hi[block_vectors], lo[block_vectors];
        for (uint64_t k = 0; k < block_vectors; ++k) {
            const Ints bits = as_ints(weight_of[k]);
            hi[k] = right<16>(bits + ints(0x8000u));
            lo[k] = low_16(bits);
        }
        store_block_16(o.hi + first, hi);
        if constexpr (writes == Writes::weight_and_state) store_block_16(o.lo + first, lo);
        return;
    }
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const uint64_t i = first + k * lanes;
        if constexpr (weight == Kept::fp16) store_fp16(o.weight_fp16 + i, weight_of[k]);
        if constexpr (weight == Kept::fp32 || writes == Writes::weight_and_state) {
            store_fp32(o.weight + i, weight_of[k]);
        }
    }
}

// b is the block's number in the chunk, i its vector's first element in the call.
template <Kept moments>
Moments load_moments(const Operands& o, uint64_t i, uint64_t b, const Chunk& chunk) {
    if constexpr (moments == Kept::fp32) {
        return {.m = load_fp32(o.m + i), .v = load_fp32(o.v + i)};
    } else if constexpr (moments == Kept::bf16) {
        return {.m = as_floats(left<16>(load_16(o.m_bf16 + i))),
                .v = as_floats(left<16>(load_16(o.v_bf16 + i)))};
    } else {
        const Floats root =
            to_floats(load_u8(o.root_uint8 + i)) * floats(chunk.old_steps[2 * b + 1]);
        return {.m = to_floats(load_s8(o.m_int8 + i)) * floats(chunk.old_steps[2 * b]),
                .v = root * root};
    }
}

template <Kept moments, Nans nans>
void store_moments(const Constants& c, const Operands& o, uint64_t first, uint64_t b,
                   const Chunk& chunk) {
    const Block& block = chunk.blocks[b];
    if constexpr (moments == Kept::fp32) {
        static_assert(at_once<moments, Writes::weight_and_state>);  // so they are there
        if constexpr (nans == Nans::any) return;
        for (uint64_t i = first; i < first + block_elements; i += lanes) {
            store_fp32(o.m + i, one_nan(load_fp32(o.m + i)));
            store_fp32(o.v + i, one_nan(load_fp32(o.v + i)));
        }
        return;
    }
    Ints m[block_vectors], v[block_vectors];
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const Ints random =
            moments == Kept::int8 ? block.random[k] : random_bits_at(c, first + k * lanes);
        if constexpr (moments == Kept::bf16) {
            m[k] = right<16>(as_ints(stored<nans>(block.m[k])) + bits_for_m(random));
            v[k] = right<16>(as_ints(stored<nans>(block.v[k])) + bits_for_v(random));
        } else {
            const Floats m_inverse = floats(chunk.inverses[2 * b]);
            const Floats root_inverse = floats(chunk.inverses[2 * b + 1]);
            m[k] = right_signed<16>(in_steps(block.m[k], m_inverse, bits_for_m(random)));
            v[k] = right_signed<16>(
                root_in_steps(stored<nans>(block.root[k]), root_inverse, bits_for_v(random)));
        }
    }
    if constexpr (moments == Kept::bf16) {
        store_block_16(o.m_bf16 + first, m);
        store_block_16(o.v_bf16 + first, v);
    } else {
        store_block_s8(o.m_int8 + first, m);
        store_block_u8(o.root_uint8 + first, v);
    }
}

template <Kept weight, Kept moments, Kept gradient, Writes writes>
void move_block(const Constants& c, const Operands& o, uint64_t first, uint64_t b, Chunk* chunk) {
    Block& block = chunk->blocks[b];
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const uint64_t i = first + k * lanes;
        block.weight[k] = load_weight<weight>(o, i);
        const Moments now = new_moments(c, block.weight[k], load_gradient<gradient>(o, i),
                                        load_moments<moments>(o, i, b, *chunk));
        keep_moments<moments, writes>(o, i, now, k, &block);
    }
}

void draw_random_bits(const Constants& c, uint64_t first, Block* block) {
    for (uint64_t k = 0; k < block_vectors; ++k) {
        block->random[k] = random_bits_at(c, first + k * lanes);
    }
}

// Returns nans_of.
template <Kept weight, Kept moments, Writes writes, Nans nans>
Ints finish_weights(const Constants& c, const Operands& o, uint64_t first, const Block& block) {
    Floats weights[block_vectors];
    new_weights<moments, writes>(c, o, first, block, weights);
    const Ints found = nans_of(weights);
    for (Floats& w : weights) w = stored<nans>(w);
    store_weights<weight, writes>(o, first, weights);
    return found;
}

}  // namespace

}  // namespace headrace::cpu_adam
