// What a vector row computes by the rule of cpu_adam/adamw_vector.h: two vectors of elements at a
// time, a *couple*; included as that is. Here: the ways of keeping a call's operands, what a couple
// hands from one stage to the next, NaNs, and asking memory for what comes.
#pragma once

#include "cpu_adam/adamw_vector.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t couple_elements = 2 * lanes;
// The block of int8; a call's whole blocks are computed, then its tail.
constexpr uint64_t block_elements = 32;
constexpr uint64_t block_couples = block_elements / couple_elements;
static_assert(block_elements % couple_elements == 0);

// How the operands of a call are kept, what it writes, and in which order a couple's elements lie
// in its vectors (InOrder: cpu_adam/adamw_in_order.h, InPairs: cpu_adam/adamw_in_pairs.h).
template <Kept weight_, Kept moments_, Kept gradient_, Writes writes_, typename Order_>
struct Way {
    static constexpr Kept weight = weight_, moments = moments_, gradient = gradient_;
    static constexpr bool all = writes_ == Writes::weight_and_state;
    using Order = Order_;
};

// What the first stage makes of a couple: its old weight and its new moments.
struct Moved {
    Floats weight[2], m[2], v[2];
};

// int8: what the steps of a block are worth.
struct Steps {
    Floats m, root;
};
// For other formats.
Steps no_steps() {
    return {.m = floats(0.0f), .root = floats(0.0f)};
}

// What is stored of NaNs: whatever they are, or the one. What has NaNs is stored twice.
enum class Nans : uint8_t { any, one };

template <Nans nans>
Floats stored(Floats value) {
    return nans == Nans::one ? one_nan(value) : value;
}

bool seldom(bool condition) {
    return __builtin_expect(condition, false);
}

// How far ahead memory is asked for: a number of elements, or of bytes in each array.
template <uint64_t elements>
struct ElementsAhead {
    template <typename T>
    static constexpr uint64_t bytes = elements * sizeof(T);
};
template <uint64_t count>
struct BytesAhead {
    template <typename T>
    static constexpr uint64_t bytes = count;
};

// Asks for the lines of the block so far ahead of the one at element `first`, of the first of two
// blocks for both where they share a line. What lies behind an array is asked for and never read,
// which no processor minds.
template <typename Ahead, typename T>
void prefetch_block(const T* array, uint64_t first) {
    constexpr uint64_t line_bytes = 64;
    constexpr uint64_t ahead_bytes = Ahead::template bytes<T>;
    static_assert(ahead_bytes % line_bytes == 0);
    static_assert(line_bytes <= 2 * block_elements * sizeof(T));
    if (block_elements * sizeof(T) < line_bytes && first / block_elements % 2 != 0) return;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(array) + first * sizeof(T) + ahead_bytes;
    for (uint64_t at = 0; at < block_elements * sizeof(T); at += line_bytes) {
        __builtin_prefetch(reinterpret_cast<const void*>(begin + at), 1);
    }
}

template <typename Way, typename Ahead>
void prefetch_weights_and_gradients(const Operands& o, uint64_t first) {
    if constexpr (Way::weight == Kept::bf16) prefetch_block<Ahead>(o.hi, first);
    if constexpr (Way::weight == Kept::bf16) prefetch_block<Ahead>(o.lo, first);
    if constexpr (Way::weight != Kept::bf16) prefetch_block<Ahead>(o.weight, first);
    if constexpr (Way::weight == Kept::fp16) prefetch_block<Ahead>(o.weight_fp16, first);
    if constexpr (Way::gradient == Kept::bf16) prefetch_block<Ahead>(o.gradient_bf16, first);
    if constexpr (Way::gradient == Kept::fp16) prefetch_block<Ahead>(o.gradient_fp16, first);
    if constexpr (Way::gradient == Kept::fp32) prefetch_block<Ahead>(o.gradient_fp32, first);
}

template <typename Way, typename Ahead>
void prefetch_moments(const Operands& o, uint64_t first) {
    if constexpr (Way::moments == Kept::fp32) prefetch_block<Ahead>(o.m, first);
    if constexpr (Way::moments == Kept::fp32) prefetch_block<Ahead>(o.v, first);
    if constexpr (Way::moments == Kept::bf16) prefetch_block<Ahead>(o.m_bf16, first);
    if constexpr (Way::moments == Kept::bf16) prefetch_block<Ahead>(o.v_bf16, first);
    if constexpr (Way::moments == Kept::int8) prefetch_block<Ahead>(o.m_int8, first);
    if constexpr (Way::moments == Kept::int8) prefetch_block<Ahead>(o.root_uint8, first);
}

// In units of 2^-16 of a step, random bits added: the number of steps is the upper half.
Ints in_steps(Floats values, Floats inverse, Ints random_16) {
    return nearest(values * inverse) + random_16;
}
// A root that is not 0 keeps a step.
Ints root_in_steps(Floats root, Floats inverse, Ints random_16) {
    return larger(in_steps(root, inverse, random_16), smaller(as_ints(root), ints(0x10000u)));
}

}  // namespace

}  // namespace headrace::cpu_adam
