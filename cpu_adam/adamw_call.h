// A call of a vector row: its blocks (cpu_adam/adamw_chunks.h, cpu_adam/adamw_side_by_side.h), its
// tail, and which way of keeping its operands have; included as those are. A tail of fewer than 32
// elements goes through the same code in a zeroed buffer: an element of zeros stays zero, and
// memory beyond the operands is neither read nor written.
#pragma once

#include <type_traits>

#include "cpu_adam/adamw_chunks.h"
#include "cpu_adam/adamw_side_by_side.h"

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

// The whole blocks of a call. Flat, because a call per primitive would cost ten times the work;
// over a copy of the operands, because a store could change the original.
template <typename Way>
[[gnu::flatten]] void update_blocks(const StepFactors& factors, const Operands& operands) {
    const Operands o = operands;
    const Constants c = constants_of(factors, o);
    const uint64_t element_count = o.element_count / block_elements * block_elements;
    if constexpr (register_count < 32 || Way::moments == Kept::int8) {
        update_in_chunks<Way>(c, o, element_count);
    } else {
        update_side_by_side<Way>(c, o, element_count);
    }
}

template <typename Way>
void update_all(const StepFactors& factors, const Operands& o) {
    update_blocks<Way>(factors, o);
    const uint64_t whole = o.element_count / block_elements * block_elements;
    if (whole == o.element_count) return;
    const Tail tail(o, whole);
    update_blocks<Way>(factors, tail.operands());
    tail.give_back(o);
}

template <Kept weight, Kept moments, Kept gradient>
void update_written(const StepFactors& factors, const Operands& o) {
    constexpr bool in_pairs =
        weight == Kept::bf16 && gradient == Kept::bf16 && moments != Kept::fp32;
    using Order = std::conditional_t<in_pairs, InPairs, InOrder>;
    if (o.writes == Writes::weight) {
        return update_all<Way<weight, moments, gradient, Writes::weight, Order>>(factors, o);
    }
    update_all<Way<weight, moments, gradient, Writes::weight_and_state, Order>>(factors, o);
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
