// The stages of a chunk (cpu_adam/adamw_chunk.h), over blocks in either order of their elements
// (adamw_blocks.h, adamw_pairs.h); included as those are.
#pragma once

#include "cpu_adam/adamw_pairs.h"

namespace headrace::cpu_adam {

namespace {

// Asks for the lines of the block that is `ahead` elements further on: 7% on an AMD Zen 3, whose
// own prefetchers see these streams too. What lies behind an array is asked for and never read,
// which no processor minds.
template <typename T>
void prefetch_block(const T* array, uint64_t first) {
    constexpr uint64_t ahead = 512;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(array) + (first + ahead) * sizeof(T);
    for (uint64_t offset_bytes = 0; offset_bytes < block_elements * sizeof(T); offset_bytes += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(begin + offset_bytes), 1);
    }
}

template <Kept weight, Kept moments, Kept gradient>
void prefetch_operands(const Operands& o, uint64_t first) {
    if constexpr (moments == Kept::int8) prefetch_block(o.m_int8, first);
    if constexpr (moments == Kept::int8) prefetch_block(o.root_uint8, first);
    if constexpr (weight == Kept::bf16) prefetch_block(o.hi, first);
    if constexpr (weight == Kept::bf16) prefetch_block(o.lo, first);
    if constexpr (weight != Kept::bf16) prefetch_block(o.weight, first);
    if constexpr (weight == Kept::fp16) prefetch_block(o.weight_fp16, first);
    if constexpr (moments == Kept::fp32) prefetch_block(o.m, first);
    if constexpr (moments == Kept::fp32) prefetch_block(o.v, first);
    if constexpr (moments == Kept::bf16) prefetch_block(o.m_bf16, first);
    if constexpr (moments == Kept::bf16) prefetch_block(o.v_bf16, first);
    if constexpr (gradient == Kept::bf16) prefetch_block(o.gradient_bf16, first);
    if constexpr (gradient == Kept::fp16) prefetch_block(o.gradient_fp16, first);
    if constexpr (gradient == Kept::fp32) prefetch_block(o.gradient_fp32, first);
}

// How the operands of a call are kept and what it writes.
template <Kept weight_, Kept moments_, Kept gradient_, Writes writes_>
struct Way {
    static constexpr Kept weight = weight_, moments = moments_, gradient = gradient_;
    static constexpr bool all = writes_ == Writes::weight_and_state;
    static constexpr Writes writes = writes_;
    static constexpr bool is_int8 = moments == Kept::int8;
    static constexpr bool in_pairs =
        weight == Kept::bf16 && gradient == Kept::bf16 && moments != Kept::fp32;
};

static_assert(sizeof(Chunk) <= 16384);  // half of the nearest cache; the operands have the rest

// The blocks of a chunk: from the call's element `first` on.
struct Extent {
    uint64_t first = 0;
    uint64_t block_count = 0;
    uint64_t at(uint64_t b) const { return first + b * block_elements; }
};

template <typename Way>
void move_chunk(const Constants& c, const Operands& o, const Extent& extent, Chunk* chunk) {
    if constexpr (Way::is_int8) load_steps(o, extent.first, extent.block_count, chunk);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        prefetch_operands<Way::weight, Way::moments, Way::gradient>(o, extent.at(b));
        if constexpr (Way::in_pairs) {
            move_block_in_pairs<Way::moments, Way::writes>(c, o, extent.at(b), b, chunk);
        } else {
            move_block<Way::weight, Way::moments, Way::gradient, Way::writes>(c, o, extent.at(b), b,
                                                                              chunk);
        }
    }
}

template <typename Way>
void draw_block(const Constants& c, const Extent& extent, uint64_t b, Chunk* chunk) {
    if constexpr (!Way::all) return;
    if constexpr (Way::in_pairs) {
        draw_random_bits_in_pairs(c, extent.at(b), &chunk->blocks[b]);
    } else {
        draw_random_bits(c, extent.at(b), &chunk->blocks[b]);
    }
}

template <typename Way, Nans nans>
void store_block_moments(const Constants& c, const Operands& o, const Extent& extent, uint64_t b,
                         const Chunk& chunk) {
    if constexpr (!Way::all) return;
    if constexpr (Way::in_pairs) {
        store_moments_in_pairs<Way::moments, nans>(c, o, extent.at(b), b, chunk);
    } else {
        store_moments<Way::moments, nans>(c, o, extent.at(b), b, chunk);
    }
}

// The last stage. Returns nans_of.
template <typename Way, Nans nans>
Ints finish_block(const Constants& c, const Operands& o, const Extent& extent, uint64_t b,
                  const Chunk& chunk) {
    if constexpr (Way::in_pairs) {
        return finish_weights_in_pairs<Way::moments, Way::writes, nans>(c, o, extent.at(b),
                                                                        chunk.blocks[b]);
    } else {
        return finish_weights<Way::weight, Way::moments, Way::writes, nans>(c, o, extent.at(b),
                                                                            chunk.blocks[b]);
    }
}

// What is stored, once more.
template <typename Way>
[[gnu::flatten, gnu::noinline]] void store_one_nan(const Constants& c, const Operands& o,
                                                   const Extent& extent, const Chunk& chunk) {
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        store_block_moments<Way, Nans::one>(c, o, extent, b, chunk);
        finish_block<Way, Nans::one>(c, o, extent, b, chunk);
    }
}

// The stages one by one.
template <typename Way>
Ints update_in_four(const Constants& c, const Operands& o, const Extent& extent, Chunk* chunk) {
    move_chunk<Way>(c, o, extent, chunk);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        take_roots(b, chunk);
        draw_block<Way>(c, extent, b, chunk);
    }
    if constexpr (Way::all) store_steps(o, extent.first, extent.block_count, chunk);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        divide(c, &chunk->blocks[b]);
        store_block_moments<Way, Nans::any>(c, o, extent, b, *chunk);
    }
    Ints nans = ints(0);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        nans = nans | finish_block<Way, Nans::any>(c, o, extent, b, *chunk);
    }
    return nans;
}

// The first two together, and the last two.
template <typename Way>
Ints update_in_two(const Constants& c, const Operands& o, const Extent& extent, Chunk* chunk) {
    move_chunk<Way>(c, o, extent, chunk);
    Ints nans = ints(0);
    for (uint64_t b = 0; b < extent.block_count; ++b) {
        nans = nans | finish_block<Way, Nans::any>(c, o, extent, b, *chunk);
        store_block_moments<Way, Nans::any>(c, o, extent, b, *chunk);
    }
    return nans;
}

template <typename Way>
void update_chunk(const Constants& c, const Operands& o, const Extent& extent, Chunk* chunk) {
    Ints nans;
    if constexpr (Way::is_int8) {
        nans = update_in_four<Way>(c, o, extent, chunk);
    } else {
        nans = update_in_two<Way>(c, o, extent, chunk);
    }
    if (any(nans)) store_one_nan<Way>(c, o, extent, *chunk);
}

}  // namespace

}  // namespace headrace::cpu_adam
