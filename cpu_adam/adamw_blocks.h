// The operands of a call in blocks of 32 elements, the blocks of int8, by the rule of
// cpu_adam/adamw_vector.h; included as that is. A tail of fewer elements goes through the same code
// in a zeroed buffer: an element of zeros stays zero, and memory beyond the operands is neither
// read nor written.
#pragma once

#include "cpu_adam/adamw_vector.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t block_elements = 32;
constexpr uint64_t block_vectors = block_elements / lanes;

template <Kept weight, Kept gradient>
void update_block_fp32(const Constants& c, const Operands& o, uint64_t first) {
    for (uint64_t i = first; i < first + block_elements; i += lanes) {
        Moments moments{.m = load_fp32(o.m + i), .v = load_fp32(o.v + i), .root = {}};
        const Floats w = load_weight<weight>(o, i);
        store_weight<weight>(o, i, update(c, w, load_gradient<gradient>(o, i), &moments));
        store_fp32(o.m + i, moments.m);
        store_fp32(o.v + i, moments.v);
    }
}

template <Kept weight, Kept gradient>
void update_block_bf16(const Constants& c, const Operands& o, uint64_t first) {
    for (uint64_t i = first; i < first + block_elements; i += lanes) {
        Moments moments{.m = as_floats(left<16>(load_16(o.m_bf16 + i))),
                        .v = as_floats(left<16>(load_16(o.v_bf16 + i))),
                        .root = {}};
        const Floats w = load_weight<weight>(o, i);
        store_weight<weight>(o, i, update(c, w, load_gradient<gradient>(o, i), &moments));
        const Ints random = random_bits(c, i);
        store_16(o.m_bf16 + i, right<16>(as_ints(moments.m) + low_16(random)));
        store_16(o.v_bf16 + i, right<16>(as_ints(moments.v) + right<16>(random)));
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

template <Kept weight, Kept gradient>
void update_block_int8(const Constants& c, const Operands& o, uint64_t first) {
    uint16_t* const steps = o.steps + 2 * (first / block_elements);
    const Floats m_step = step_at(steps), root_step = step_at(steps + 1);
    Floats m[block_vectors], root[block_vectors];
    Ints m_largest = ints(0), root_largest = ints(0);
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const uint64_t i = first + k * lanes;
        const Floats old_root = to_floats(load_u8(o.root_uint8 + i)) * root_step;
        Moments moments{
            .m = to_floats(load_s8(o.m_int8 + i)) * m_step, .v = old_root * old_root, .root = {}};
        const Floats w = load_weight<weight>(o, i);
        store_weight<weight>(o, i, update(c, w, load_gradient<gradient>(o, i), &moments));
        m[k] = moments.m;
        root[k] = moments.root;
        m_largest = larger(m_largest, as_ints(moments.m) & ints(0x7FFFFFFFu));
        root_largest = larger(root_largest, as_ints(moments.root));
    }
    const BlockStep for_m = block_step(largest_of(m_largest), 1.0f / 127);
    const BlockStep for_root = block_step(largest_of(root_largest), 1.0f / 255);
    const Floats m_inverse = floats(for_m.inverse), root_inverse = floats(for_root.inverse);
    Ints m_steps[block_vectors], root_steps[block_vectors];
    for (uint64_t k = 0; k < block_vectors; ++k) {
        const Ints random = random_bits(c, first + k * lanes);
        const Ints one_or_zero = smaller(as_ints(root[k]), ints(1));  // a root but 0 keeps a step
        m_steps[k] = in_steps(m[k], m_inverse, low_16(random));
        root_steps[k] = larger(in_steps(root[k], root_inverse, right<16>(random)), one_or_zero);
    }
    store_block_s8(o.m_int8 + first, m_steps);
    store_block_u8(o.root_uint8 + first, root_steps);
    steps[0] = for_m.step;
    steps[1] = for_root.step;
}

template <Kept weight, Kept moments, Kept gradient>
void update_block(const Constants& c, const Operands& o, uint64_t first) {
    if constexpr (moments == Kept::fp32) update_block_fp32<weight, gradient>(c, o, first);
    if constexpr (moments == Kept::bf16) update_block_bf16<weight, gradient>(c, o, first);
    if constexpr (moments == Kept::int8) update_block_int8<weight, gradient>(c, o, first);
}

// Operands of one block in a buffer: what there is of it, and zeros.
class Tail {
  public:
    Tail(const Operands& o, uint64_t first) : first_(first), count_(o.element_count - first) {
        copy_ = o;
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

template <Kept weight, Kept moments, Kept gradient>
void update_all(const StepFactors& factors, const Operands& o) {
    const Constants c = constants_of(factors, o);
    const uint64_t whole = o.element_count / block_elements * block_elements;
    for (uint64_t first = 0; first < whole; first += block_elements) {
        update_block<weight, moments, gradient>(c, o, first);
    }
    if (whole == o.element_count) return;
    const Tail tail(o, whole);
    update_block<weight, moments, gradient>(constants_of(factors, tail.operands()), tail.operands(),
                                            0);
    tail.give_back(o);
}

template <Kept weight, Kept moments>
void update_from_gradient(const StepFactors& factors, const Operands& o) {
    if (o.gradient_bf16 != nullptr) return update_all<weight, moments, Kept::bf16>(factors, o);
    if (o.gradient_fp16 != nullptr) return update_all<weight, moments, Kept::fp16>(factors, o);
    update_all<weight, moments, Kept::fp32>(factors, o);
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
