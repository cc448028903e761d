// The rule of cpu_adam/adamw.h, 8 elements at a time, with AVX2 and FMA. This file alone is
// compiled with those flags; nothing in it is visible outside but update_avx2.
//
// A tail of fewer than 8 elements goes through the same vector code in a zeroed buffer: an element
// of zeros stays zero, and memory beyond the operands is neither read nor written.
#include <immintrin.h>

#include "cpu_adam/adamw.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t lanes = 8;

struct Constants {
    __m256 gradient_scale, l2, m_rate, v_rate, root_scale, epsilon, step_size, decay, largest;
};

Constants constants_of(const StepFactors& factors) {
    return {.gradient_scale = _mm256_set1_ps(factors.gradient_scale),
            .l2 = _mm256_set1_ps(factors.l2),
            .m_rate = _mm256_set1_ps(factors.m_rate),
            .v_rate = _mm256_set1_ps(factors.v_rate),
            .root_scale = _mm256_set1_ps(factors.root_scale),
            .epsilon = _mm256_set1_ps(factors.epsilon),
            .step_size = _mm256_set1_ps(factors.step_size),
            .decay = _mm256_set1_ps(factors.decay),
            .largest = _mm256_set1_ps(0x1p127f)};
}

__m256i load_16(const uint16_t* source) {
    const auto* lanes_16 = reinterpret_cast<const __m128i*>(source);
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(lanes_16));
}

// The values are below 2^16.
void store_16(uint16_t* target, __m256i values) {
    const __m256i packed = _mm256_packus_epi32(values, values);  // a a b b, by 64 bits
    const __m256i ordered = _mm256_permute4x64_epi64(packed, 0b1000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm256_castsi256_si128(ordered));
}

__m256 join(__m256i hi, __m256i lo) {
    const __m256i rounded_up = _mm256_slli_epi32(_mm256_srli_epi32(lo, 15), 16);
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(hi, 16), lo);
    return _mm256_castsi256_ps(_mm256_sub_epi32(sum, rounded_up));
}

__m256 one_nan(__m256 value) {
    const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    return _mm256_blendv_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)), is_nan);
}

void split(__m256 value, uint16_t* hi, uint16_t* lo) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i half = _mm256_set1_epi32(0x8000);
    store_16(hi, _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16));
    store_16(lo, _mm256_and_si256(bits, _mm256_set1_epi32(0xFFFF)));
}

__m256 update_lanes(const Constants& c, __m256 w, __m256 gradient, float* m_at, float* v_at) {
    const __m256 g = _mm256_fmadd_ps(c.l2, w, _mm256_mul_ps(gradient, c.gradient_scale));
    __m256 m = _mm256_loadu_ps(m_at);
    m = one_nan(_mm256_fmadd_ps(c.m_rate, _mm256_sub_ps(g, m), m));
    _mm256_storeu_ps(m_at, m);
    const __m256 q = _mm256_min_ps(_mm256_mul_ps(g, g), c.largest);
    __m256 v = _mm256_loadu_ps(v_at);
    v = one_nan(_mm256_fmadd_ps(c.v_rate, _mm256_sub_ps(q, v), v));
    _mm256_storeu_ps(v_at, v);
    const __m256 d = _mm256_fmadd_ps(_mm256_sqrt_ps(v), c.root_scale, c.epsilon);
    const __m256 u = _mm256_mul_ps(c.step_size, _mm256_div_ps(m, d));
    return one_nan(_mm256_sub_ps(w, _mm256_fmadd_ps(c.decay, w, u)));
}

template <bool split_weight, bool bf16_gradient>
void update_at(const Constants& c, const Operands& o, uint64_t i) {
    __m256 gradient;
    if constexpr (bf16_gradient) {
        gradient = _mm256_castsi256_ps(_mm256_slli_epi32(load_16(o.gradient_bf16 + i), 16));
    } else {
        gradient = _mm256_loadu_ps(o.gradient_fp32 + i);
    }
    if constexpr (split_weight) {
        const __m256 w = join(load_16(o.hi + i), load_16(o.lo + i));
        split(update_lanes(c, w, gradient, o.m + i, o.v + i), o.hi + i, o.lo + i);
    } else {
        const __m256 w = _mm256_loadu_ps(o.weight + i);
        _mm256_storeu_ps(o.weight + i, update_lanes(c, w, gradient, o.m + i, o.v + i));
    }
}

template <typename T>
void copy_elements(T* target, const T* source, uint64_t element_count) {
    __builtin_memcpy(target, source, element_count * sizeof(T));
}

template <bool split_weight, bool bf16_gradient>
void update_tail(const Constants& c, const Operands& o, uint64_t first, uint64_t count) {
    uint16_t hi[lanes] = {}, lo[lanes] = {}, gradient_bf16[lanes] = {};
    float weight[lanes] = {}, m[lanes] = {}, v[lanes] = {}, gradient_fp32[lanes] = {};
    copy_elements(m, o.m + first, count);
    copy_elements(v, o.v + first, count);
    if constexpr (split_weight) {
        copy_elements(hi, o.hi + first, count);
        copy_elements(lo, o.lo + first, count);
    } else {
        copy_elements(weight, o.weight + first, count);
    }
    if constexpr (bf16_gradient) {
        copy_elements(gradient_bf16, o.gradient_bf16 + first, count);
    } else {
        copy_elements(gradient_fp32, o.gradient_fp32 + first, count);
    }
    Operands copy{.element_count = lanes, .hi = hi, .lo = lo, .m = m, .v = v};
    copy.weight = weight;
    copy.gradient_bf16 = gradient_bf16;
    copy.gradient_fp32 = gradient_fp32;
    update_at<split_weight, bf16_gradient>(c, copy, 0);
    copy_elements(o.m + first, m, count);
    copy_elements(o.v + first, v, count);
    if constexpr (split_weight) {
        copy_elements(o.hi + first, hi, count);
        copy_elements(o.lo + first, lo, count);
    } else {
        copy_elements(o.weight + first, weight, count);
    }
}

template <bool split_weight, bool bf16_gradient>
void update_all(const StepFactors& factors, const Operands& o) {
    const Constants c = constants_of(factors);
    const uint64_t whole = o.element_count / lanes * lanes;
    for (uint64_t i = 0; i < whole; i += lanes) update_at<split_weight, bf16_gradient>(c, o, i);
    if (whole < o.element_count) {
        update_tail<split_weight, bf16_gradient>(c, o, whole, o.element_count - whole);
    }
}

}  // namespace

void update_avx2(const StepFactors& factors, const Operands& o) {
    const bool other_format = o.m == nullptr || o.weight_fp16 != nullptr;
    if (other_format || o.gradient_fp16 != nullptr) return update_scalar(factors, o);
    const bool bf16_gradient = o.gradient_bf16 != nullptr;
    if (o.weight == nullptr) {
        bf16_gradient ? update_all<true, true>(factors, o) : update_all<true, false>(factors, o);
    } else {
        bf16_gradient ? update_all<false, true>(factors, o) : update_all<false, false>(factors, o);
    }
}

}  // namespace headrace::cpu_adam
