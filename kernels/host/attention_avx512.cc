// Attention with AVX-512: 16 lanes are one register, a piece of a product 12 rows by 32 columns (24
// sums). This file alone is compiled with that flag.
#ifdef HEADRACE_AVX512_HEADER
#include HEADRACE_AVX512_HEADER
#else
#include <immintrin.h>
#endif
#include <math.h>

#include "kernels/host/attention_tile.h"
#include "kernels/host/natural_log.h"

namespace headrace::kernels {

namespace {

struct Lanes {
    __m512 all;
};
constexpr int micro_rows = 12;
constexpr int micro_vectors = 2;

Lanes load(const float* source) {
    return {_mm512_loadu_ps(source)};
}
void store(float* target, Lanes x) {
    _mm512_storeu_ps(target, x.all);
}
Lanes fill(float x) {
    return {_mm512_set1_ps(x)};
}
Lanes add(Lanes a, Lanes b) {
    return {_mm512_add_ps(a.all, b.all)};
}
Lanes subtract(Lanes a, Lanes b) {
    return {_mm512_sub_ps(a.all, b.all)};
}
Lanes multiply(Lanes a, Lanes b) {
    return {_mm512_mul_ps(a.all, b.all)};
}
Lanes divide(Lanes a, Lanes b) {
    return {_mm512_div_ps(a.all, b.all)};
}
Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
// a > b ? a : b, and a < b ? a : b.
Lanes larger_of(Lanes a, Lanes b) {
    return {_mm512_max_ps(a.all, b.all)};
}
Lanes smaller_of(Lanes a, Lanes b) {
    return {_mm512_min_ps(a.all, b.all)};
}

Lanes power_of_two(Lanes whole) {
    const __m512i exponent =
        _mm512_add_epi32(_mm512_cvtps_epi32(whole.all), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

// value where not (x < limit), else 0.
Lanes zero_below(Lanes x, float limit, Lanes value) {
    const __mmask16 stays = _mm512_cmp_ps_mask(x.all, _mm512_set1_ps(limit), _CMP_NLT_UQ);
    return {_mm512_maskz_mov_ps(stays, value.all)};
}

__m256 low_half(Lanes x) {
    return _mm512_castps512_ps256(x.all);
}
__m256 high_half(Lanes x) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.all), 1));
}

float join_sum(Lanes x) {
    const __m256 eight = _mm256_add_ps(low_half(x), high_half(x));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
float join_largest(Lanes x) {
    const __m256 eight = _mm256_max_ps(low_half(x), high_half(x));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

Lanes widen(const char* source, offload::Dtype dtype) {
    if (dtype == offload::Dtype::fp32) return load(reinterpret_cast<const float*>(source));
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    if (dtype == offload::Dtype::fp16) return {_mm512_cvtph_ps(bits)};
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

// Nearest even, every NaN 0x7FC0.
__m256i round_to_bf16(__m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(_mm512_set1_epi32(0x7FFF), odd);
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7FC0)));
}

// Nearest even, every NaN the quiet one of its sign.
__m256i round_to_fp16(__m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(-1 << 31));
    const __m512i nan = _mm512_or_si512(sign, _mm512_set1_epi32(0x7FC00000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512 quiet = _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, is_nan, nan));
    return _mm512_cvtps_ph(quiet, _MM_FROUND_TO_NEAREST_INT);
}

void narrow(char* target, Lanes x, offload::Dtype dtype) {
    if (dtype == offload::Dtype::fp32) return store(reinterpret_cast<float*>(target), x);
    const bool bf16 = dtype == offload::Dtype::bf16;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        bf16 ? round_to_bf16(x.all) : round_to_fp16(x.all));
}

#include "kernels/host/attention_product.inc"
// After the products that it calls.
#include "kernels/host/attention_loops.inc"

}  // namespace

AttentionTasks attention_tasks_avx512() {
    return all_tasks;
}

void attention_exp_avx512(const float* source, float* target, int64_t count) {
    exp_all(source, target, count);
}

}  // namespace headrace::kernels
