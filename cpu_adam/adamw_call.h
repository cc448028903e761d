// A call of a vector row: its chunks (cpu_adam/adamw_blocks.h, adamw_pairs.h), its tail, and
// which way of keeping its operands have; included as the blocks are. A tail of fewer than 32
// elements goes through the same code in a zeroed buffer: an element of zeros stays zero, and
// memory beyond the operands is neither read nor written.
#pragma once

#include "cpu_adam/adamw_pairs.h"

namespace headrace::cpu_adam {

namespace {

// Operands of one block in a buffer: what there is of it, and zeros.
class Tail {
  public:
    Tail(const Operands& o, uint64_t first)
        : first_(first), count_(o.element_count - first), copy_(o) {
        copy_.element_count = block_elements;
        copy_.hi = taken(hi_, o.hi);
        copy_.lo = taken(lo_, o.lo);
        copy_.weight = taken(weight_, o.weight);
        copy_.weight_fp16 = taken(weight_fp16_, o.weight_fp16);
        copy_.m = taken(m_, o.m);
        copy_.v = taken(v_, o.v);
        copy_.m_bf16 = taken(m_bf16_, o.m_bf16);
        copy_.v_bf16 = taken(v_bf16_, o.v_bf16);
        copy_.m_int8 = taken(m_int8_, o.m_int8);
        copy_.root_uint8 = taken(root_uint8_, o.root_uint8);
        copy_.gradient_bf16 = taken(gradient_16_, o.gradient_bf16);
        if (o.gradient_fp16 != nullptr) copy_.gradient_fp16 = taken(gradient_16_, o.gradient_fp16);
        copy_.gradient_fp32 = taken(gradient_fp32_, o.gradient_fp32);
        if (o.steps != nullptr) copy_.steps = o.steps + 2 * (first / block_elements);
        copy_.first_element = o.first_element + first;
    }
    const Operands& operands() const { return copy_; }

    void give_back(const Operands& o) const {
        given(hi_, o.hi);
        given(lo_, o.lo);
        given(weight_, o.weight);
        given(weight_fp16_, o.weight_fp16);
        given(m_, o.m);
        given(v_, o.v);
        given(m_bf16_, o.m_bf16);
        given(v_bf16_, o.v_bf16);
        given(m_int8_, o.m_int8);
        given(root_uint8_, o.root_uint8);
    }

  private:
    template <typename T>
    T* taken(T* buffer, const T* source) const {
        if (source == nullptr) return nullptr;
        __builtin_memcpy(buffer, source + first_, count_ * sizeof(T));
        return buffer;
    }
    template <typename T>
    void given(const T* buffer, T* target) const {
        if (target != nullptr) __builtin_memcpy(target + first_, buffer, count_ * sizeof(T));
    }

    uint64_t first_ = 0;
    uint64_t count_ = 0;
    Operands copy_;
    uint16_t hi_[block_elements] = {}, lo_[block_elements] = {};
    uint16_t weight_fp16_[block_elements] = {}, gradient_16_[block_elements] = {};
    uint16_t m_bf16_[block_elements] = {}, v_bf16_[block_elements] = {};
    float weight_[block_elements] = {}, m_[block_elements] = {}, v_[block_elements] = {};
    float gradient_fp32_[block_elements] = {};
    int8_t m_int8_[block_elements] = {};
    uint8_t root_uint8_[block_elements] = {};
};

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

// int8 is bound by its arithmetic.
template <Kept weight, Kept moments, Kept gradient>
void prefetch_operands(const Operands& o, uint64_t first) {
    if constexpr (moments == Kept::int8) return;
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

template <Kept weight, Kept moments, Kept gradient>
constexpr bool in_pairs = weight == Kept::bf16&& gradient == Kept::bf16&& moments != Kept::fp32;

// The second half of a chunk. Changes nothing in it, and so may be done again.
template <Kept weight, Kept moments, Kept gradient, Writes writes, Nans nans>
Ints end_chunk(const Constants& c, const Operands& o, uint64_t first, uint64_t block_count,
               const Chunk& chunk) {
    Ints found = ints(0);
    for (uint64_t b = 0; b < block_count; ++b) {
        const uint64_t at = first + b * block_elements;
        if constexpr (in_pairs<weight, moments, gradient>) {
            found = found | end_block_in_pairs<moments, writes, nans>(c, o, at, b, chunk);
        } else {
            found = found | end_block<weight, moments, writes, nans>(c, o, at, b, chunk);
        }
    }
    return found;
}

template <Kept weight, Kept moments, Kept gradient, Writes writes>
[[gnu::flatten, gnu::noinline]] void end_chunk_of_nans(const Constants& c, const Operands& o,
                                                       uint64_t first, uint64_t block_count,
                                                       const Chunk& chunk) {
    end_chunk<weight, moments, gradient, writes, Nans::one>(c, o, first, block_count, chunk);
}

// The chunk of block_count blocks from element `first` on.
template <Kept weight, Kept moments, Kept gradient, Writes writes>
void update_chunk(const Constants& c, const Operands& o, uint64_t first, uint64_t block_count,
                  Chunk* chunk) {
    if constexpr (moments == Kept::int8) load_steps(o, first, block_count, chunk);
    for (uint64_t b = 0; b < block_count; ++b) {
        const uint64_t at = first + b * block_elements;
        prefetch_operands<weight, moments, gradient>(o, at);
        if constexpr (in_pairs<weight, moments, gradient>) {
            begin_block_in_pairs<moments>(c, o, at, b, chunk);
        } else {
            begin_block<weight, moments, gradient>(c, o, at, b, chunk);
        }
        if constexpr (moments == Kept::int8) keep_largest(chunk->blocks[b], b, chunk);
    }
    if constexpr (moments == Kept::int8 && writes == Writes::weight_and_state) {
        store_steps(o, first, block_count, chunk);
    }
    const Ints nans =
        end_chunk<weight, moments, gradient, writes, Nans::any>(c, o, first, block_count, *chunk);
    if (any(nans)) {
        end_chunk_of_nans<weight, moments, gradient, writes>(c, o, first, block_count, *chunk);
    }
}

// The whole blocks of a call. Flat, because a call per primitive would cost ten times the work;
// over a copy of the operands, because a store could change the original.
template <Kept weight, Kept moments, Kept gradient, Writes writes>
[[gnu::flatten]] void update_blocks(const StepFactors& factors, const Operands& operands) {
    const Operands o = operands;
    const Constants c = constants_of(factors, o);
    Chunk chunk;
    constexpr uint64_t most = moments == Kept::int8 ? chunk_blocks_max : chunk_blocks;
    const uint64_t block_count = o.element_count / block_elements;
    for (uint64_t done = 0; done < block_count; done += most) {
        const uint64_t left = block_count - done;
        update_chunk<weight, moments, gradient, writes>(c, o, done * block_elements,
                                                        left < most ? left : most, &chunk);
    }
}

template <Kept weight, Kept moments, Kept gradient, Writes writes>
void update_all(const StepFactors& factors, const Operands& o) {
    update_blocks<weight, moments, gradient, writes>(factors, o);
    const uint64_t whole = o.element_count / block_elements * block_elements;
    if (whole == o.element_count) return;
    const Tail tail(o, whole);
    update_blocks<weight, moments, gradient, writes>(factors, tail.operands());
    tail.give_back(o);
}

template <Kept weight, Kept moments, Kept gradient>
void update_written(const StepFactors& factors, const Operands& o) {
    if (o.writes == Writes::weight) {
        return update_all<weight, moments, gradient, Writes::weight>(factors, o);
    }
    update_all<weight, moments, gradient, Writes::weight_and_state>(factors, o);
}

template <Kept weight, Kept moments>
void update_from_gradient(const StepFactors& factors, const Operands& o) {
    if (o.gradient_bf16 != nullptr) return update_written<weight, moments, Kept::bf16>(factors, o);
    if (o.gradient_fp16 != nullptr) return update_written<weight, moments, Kept::fp16>(factors, o);
    update_written<weight, moments, Kept::fp32>(factors, o);
}

template <Kept weight>
void update_moments(const StepFactors& factors, const Operands& o) {
    if (o.m_bf16 != nullptr) return update_from_gradient<weight, Kept::bf16>(factors, o);
    if (o.m_int8 != nullptr) return update_from_gradient<weight, Kept::int8>(factors, o);
    update_from_gradient<weight, Kept::fp32>(factors, o);
}

void update_operands(const StepFactors& factors, const Operands& o) {
    if (o.weight == nullptr) return update_moments<Kept::bf16>(factors, o);
    if (o.weight_fp16 != nullptr) return update_moments<Kept::fp16>(factors, o);
    update_moments<Kept::fp32>(factors, o);
}

}  // namespace

}  // namespace headrace::cpu_adam
