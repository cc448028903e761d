// One block of 32 elements, the block of int8, by the rule of cpu_adam/adamw_vector.h; included as
// that is. A block goes in stages, each over all its vectors: so that the chain of dependent
// operations of one vector, some 90 cycles with a root and a division, overlaps with those of the
// others.
#pragma once

#include "cpu_adam/adamw_vector.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t block_elements = 32;
constexpr uint64_t block_vectors = block_elements / lanes;

struct Block {
    Moments moments[block_vectors];
    Floats weight[block_vectors];
};

// Where m or v is a NaN so is the new weight, which is all that a block without NaNs pays for.
bool has_nan(const Block& block) {
    Ints nans = nan_in_either(block.weight[0], block.weight[1]);
    for (uint64_t k = 2; k < block_vectors; k += 2) {
        nans = nans | nan_in_either(block.weight[k], block.weight[k + 1]);
    }
    return any(nans);
}

void make_one_nan(Block* block) {
    for (uint64_t k = 0; k < block_vectors; ++k) {
        Moments& moments = block->moments[k];
        moments = {one_nan(moments.m), one_nan(moments.v), one_nan(moments.root)};
        block->weight[k] = one_nan(block->weight[k]);
    }
}

template <Kept weight>
void store_weights(const Operands& o, uint64_t first, const Block& block) {
    if constexpr (weight == Kept::bf16) {
        Ints hi[block_vectors], lo[block_vectors];
        for (uint64_t k = 0; k < block_vectors; ++k) {
            const Ints bits = as_ints(block.weight[k]);
            hi[k] = right<16>(bits + ints(0x8000u));
            lo[k] = low_16(bits);
        }
        store_block_16(o.hi + first, hi);
        store_block_16(o.lo + first, lo);
        return;
    }
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const uint64_t i = first + k * lanes;
        store_fp32(o.weight + i, block.weight[k]);
        if constexpr (weight == Kept::fp16) store_fp16(o.weight_fp16 + i, block.weight[k]);
    }
}

// A step of a block and its inverse: cpu_adam/rounding.h.
struct BlockStep {
    uint16_t step = 0;
    float inverse = 0;
};

float float_of_bits(uint32_t bits) {
    float value = 0;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
}

BlockStep block_step(uint32_t largest_bits, float levels_inverse) {
    if (largest_bits == 0) return {};
    if (largest_bits >= 0x7F800000u) return {.step = 0x7FC0, .inverse = float_of_bits(0x7FC00000u)};
    float step = float_of_bits(largest_bits) * levels_inverse;
    if (step < 0x1p-100f) step = 0x1p-100f;
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &step, sizeof(bits));
    bits = (bits + 0xFFFFu) >> 16;
    return {.step = static_cast<uint16_t>(bits), .inverse = 65536.0f / float_of_bits(bits << 16)};
}

Floats step_at(const uint16_t* step) {
    return floats(float_of_bits(static_cast<uint32_t>(*step) << 16));
}

Ints in_steps(Floats values, Floats inverse, Ints random_16) {
    return right_signed<16>(nearest(values * inverse) + random_16);
}

// The steps of the block, stored, and their inverses.
struct Inverses {
    Floats m, root;
};
Inverses store_steps(const Operands& o, uint64_t first, const Block& block) {
    Ints m_largest = ints(0), root_largest = ints(0);
    for (const Moments& moments : block.moments) {
        m_largest = larger(m_largest, as_ints(moments.m) & ints(0x7FFFFFFFu));
        root_largest = larger(root_largest, as_ints(moments.root) & ints(0x7FFFFFFFu));
    }
    const BlockStep for_m = block_step(largest_of(m_largest), 1.0f / 127);
    const BlockStep for_root = block_step(largest_of(root_largest), 1.0f / 255);
    uint16_t* const steps = o.steps + 2 * (first / block_elements);
    steps[0] = for_m.step;
    steps[1] = for_root.step;
    return {.m = floats(for_m.inverse), .root = floats(for_root.inverse)};
}

void store_in_steps(const Constants& c, const Operands& o, uint64_t first, const Block& block,
                    const Inverses& inverses) {
    Ints m[block_vectors], root[block_vectors];
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const Ints random = random_bits_at(c, first + k * lanes);
        const Floats new_root = block.moments[k].root;
        const Ints one_or_zero = smaller(as_ints(new_root), ints(1));  // a root but 0 keeps a step
        m[k] = in_steps(block.moments[k].m, inverses.m, low_16(random));
        root[k] = larger(in_steps(new_root, inverses.root, right<16>(random)), one_or_zero);
    }
    store_block_s8(o.m_int8 + first, m);
    store_block_u8(o.root_uint8 + first, root);
}

template <Kept moments>
OldMoments load_moments(const Operands& o, uint64_t first, uint64_t k) {
    const uint64_t i = first + k * lanes;
    if constexpr (moments == Kept::fp32) {
        return {.m = load_fp32(o.m + i), .v = load_fp32(o.v + i)};
    } else if constexpr (moments == Kept::bf16) {
        return {.m = as_floats(left<16>(load_16(o.m_bf16 + i))),
                .v = as_floats(left<16>(load_16(o.v_bf16 + i)))};
    } else {
        const uint16_t* const steps = o.steps + 2 * (first / block_elements);
        const Floats root = to_floats(load_u8(o.root_uint8 + i)) * step_at(steps + 1);
        return {.m = to_floats(load_s8(o.m_int8 + i)) * step_at(steps), .v = root * root};
    }
}

// Moments in fp32 or bf16.
template <Kept kept>
void store_moments(const Constants& c, const Operands& o, uint64_t first, const Block& block) {
    if constexpr (kept == Kept::fp32) {
        for (uint64_t k = 0; k < block_vectors; ++k) {
            store_fp32(o.m + first + k * lanes, block.moments[k].m);
            store_fp32(o.v + first + k * lanes, block.moments[k].v);
        }
    } else {
        Ints m[block_vectors], v[block_vectors];
        for (uint64_t k = 0; k < block_vectors; ++k) {
            const Ints random = random_bits_at(c, first + k * lanes);
            m[k] = right<16>(as_ints(block.moments[k].m) + low_16(random));
            v[k] = right<16>(as_ints(block.moments[k].v) + right<16>(random));
        }
        store_block_16(o.m_bf16 + first, m);
        store_block_16(o.v_bf16 + first, v);
    }
}

template <Kept weight, Kept kept, Kept gradient>
void update_block(const Constants& c, const Operands& o, uint64_t first) {
    Block block;
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const uint64_t i = first + k * lanes;
        block.weight[k] = load_weight<weight>(o, i);
        block.moments[k] = new_moments(c, block.weight[k], load_gradient<gradient>(o, i),
                                       load_moments<kept>(o, first, k));
    }
    // Before the weights: their divisions cover the way to the steps.
    [[maybe_unused]] Inverses inverses;
    if constexpr (kept == Kept::int8) inverses = store_steps(o, first, block);
    for (uint64_t k = 0; k < block_vectors; ++k) {
        block.weight[k] = new_weight(c, block.weight[k], block.moments[k]);
    }
    if (has_nan(block)) make_one_nan(&block);
    store_weights<weight>(o, first, block);
    if constexpr (kept == Kept::int8) {
        store_in_steps(c, o, first, block, inverses);
    } else {
        store_moments<kept>(c, o, first, block);
    }
}

}  // namespace

}  // namespace headrace::cpu_adam
