// The rule of cpu_adam/adamw.h, 16 elements at a time, with AVX-512F. This file alone is
// compiled with that flag; nothing in it is visible outside but update_avx512.
//
// A tail of fewer than 16 elements goes through the same vector code in a zeroed buffer: an element
// of zeros stays zero, and memory beyond the operands is neither read nor written.
#ifdef HEADRACE_AVX512_HEADER  // a test runs this source on machines without AVX-512
#include HEADRACE_AVX512_HEADER
#else
#include <immintrin.h>
#endif

#include "cpu_adam/adamw.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t lanes = 16;

struct Constants {
    __m512 gradient_scale, l2, m_rate, v_rate, root_scale, epsilon, step_size, decay, largest;
};

Constants constants_of(const StepFactors& factors) {
    return {.gradient_scale = _mm512_set1_ps(factors.gradient_scale),
            .l2 = _mm512_set1_ps(factors.l2),
            .m_rate = _mm512_set1_ps(factors.m_rate),
            .v_rate = _mm512_set1_ps(factors.v_rate),
            .root_scale = _mm512_set1_ps(factors.root_scale),
            .epsilon = _mm512_set1_ps(factors.epsilon),
            .step_size = _mm512_set1_ps(factors.step_size),
            .decay = _mm512_set1_ps(factors.decay),
            .largest = _mm512_set1_ps(0x1p127f)};
}

__m512i load_16(const uint16_t* source) {
    const auto* lanes_16 = reinterpret_cast<const __m256i*>(source);
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(lanes_16));
}

// Keeps the lower half of each value.
void store_16(uint16_t* target, __m512i values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_cvtepi32_epi16(values));
}

__m512 join(__m512i hi, __m512i lo) {
    const __m512i rounded_up = _mm512_slli_epi32(_mm512_srli_epi32(lo, 15), 16);
    const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(hi, 16), lo);
    return _mm512_castsi512_ps(_mm512_sub_epi32(sum, rounded_up));
}

__m512 one_nan(__m512 value) {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(_mm512_castps_si512(value), is_nan, _mm512_set1_epi32(0x7FC00000)));
}

void split(__m512 value, uint16_t* hi, uint16_t* lo) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i half = _mm512_set1_epi32(0x8000);
    store_16(hi, _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16));
    store_16(lo, bits);
}

__m512 update_lanes(const Constants& c, __m512 w, __m512 gradient, float* m_at, float* v_at) {
    const __m512 g = _mm512_fmadd_ps(c.l2, w, _mm512_mul_ps(gradient, c.gradient_scale));
    __m512 m = _mm512_loadu_ps(m_at);
    m = one_nan(_mm512_fmadd_ps(c.m_rate, _mm512_sub_ps(g, m), m));
    _mm512_storeu_ps(m_at, m);
    const __m512 q = _mm512_min_ps(_mm512_mul_ps(g, g), c.largest);
    __m512 v = _mm512_loadu_ps(v_at);
    v = one_nan(_mm512_fmadd_ps(c.v_rate, _mm512_sub_ps(q, v), v));
    _mm512_storeu_ps(v_at, v);
    const __m512 d = _mm512_fmadd_ps(_mm512_sqrt_ps(v), c.root_scale, c.epsilon);
    const __m512 u = _mm512_mul_ps(c.step_size, _mm512_div_ps(m, d));
    return one_nan(_mm512_sub_ps(w, _mm512_fmadd_ps(c.decay, w, u)));
}

template <bool split_weight, bool bf16_gradient>
void update_at(const Constants& c, const Operands& o, uint64_t i) {
    __m512 gradient;
    if constexpr (bf16_gradient) {
        gradient = _mm512_castsi512_ps(_mm512_slli_epi32(load_16(o.gradient_bf16 + i), 16));
    } else {
        gradient = _mm512_loadu_ps(o.gradient_fp32 + i);
    }
    if constexpr (split_weight) {
        const __m512 w = join(load_16(o.hi + i), load_16(o.lo + i));
        split(update_lanes(c, w, gradient, o.m + i, o.v + i), o.hi + i, o.lo + i);
    } else {
        const __m512 w = _mm512_loadu_ps(o.weight + i);
        _mm512_storeu_ps(o.weight + i, update_lanes(c, w, gradient, o.m + i, o.v + i));
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

void update_avx512(const StepFactors& factors, const Operands& o) {
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
