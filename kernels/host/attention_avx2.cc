// Attention with AVX2, FMA and F16C: 16 lanes are two registers, a piece of a product 6 rows by 16
// columns (12 sums, enough to hide the latency of fma). This file alone is compiled with those
// flags.
#include <immintrin.h>
#include <math.h>

#include "kernels/host/attention_tile.h"
#include "kernels/host/natural_log.h"

namespace headrace::kernels {

namespace {

struct Lanes {
    __m256 low, high;
};
constexpr int micro_rows = 6;
constexpr int micro_vectors = 1;

Lanes load(const float* source) {
    return {_mm256_loadu_ps(source), _mm256_loadu_ps(source + 8)};
}
void store(float* target, Lanes x) {
    _mm256_storeu_ps(target, x.low);
    _mm256_storeu_ps(target + 8, x.high);
}
Lanes fill(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
Lanes add(Lanes a, Lanes b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
Lanes subtract(Lanes a, Lanes b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
Lanes multiply(Lanes a, Lanes b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
Lanes divide(Lanes a, Lanes b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
// a > b ? a : b, and a < b ? a : b.
Lanes larger_of(Lanes a, Lanes b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
Lanes smaller_of(Lanes a, Lanes b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

__m256 power_of_two(__m256 whole) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
Lanes power_of_two(Lanes whole) {
    return {power_of_two(whole.low), power_of_two(whole.high)};
}

// value where not (x < limit), else 0.
Lanes zero_below(Lanes x, float limit, Lanes value) {
    const __m256 limits = _mm256_set1_ps(limit);
    return {_mm256_and_ps(value.low, _mm256_cmp_ps(x.low, limits, _CMP_NLT_UQ)),
            _mm256_and_ps(value.high, _mm256_cmp_ps(x.high, limits, _CMP_NLT_UQ))};
}

float join_sum(Lanes x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
float join_largest(Lanes x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

__m128i load_half(const char* source) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
}

Lanes widen(const char* source, offload::Dtype dtype) {
    if (dtype == offload::Dtype::fp32) {
        return load(reinterpret_cast<const float*>(source));
    }
    const __m128i low = load_half(source);
    const __m128i high = load_half(source + 16);
    if (dtype == offload::Dtype::fp16) return {_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16))};
}

// Nearest even, every NaN 0x7FC0; the bits in the lower half of each 32.
__m256i round_to_bf16(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), odd);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC0), _mm256_castps_si256(is_nan));
}

// Nearest even, every NaN the quiet one of its sign.
__m128i round_to_fp16(__m256 values) {
    const __m256 sign = _mm256_and_ps(values, _mm256_set1_ps(-0.0f));
    const __m256 nan = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    return _mm256_cvtps_ph(_mm256_blendv_ps(values, nan, is_nan), _MM_FROUND_TO_NEAREST_INT);
}

void narrow(char* target, Lanes x, offload::Dtype dtype) {
    if (dtype == offload::Dtype::fp32) return store(reinterpret_cast<float*>(target), x);
    auto* words = reinterpret_cast<__m128i*>(target);
    if (dtype == offload::Dtype::fp16) {
        _mm_storeu_si128(words, round_to_fp16(x.low));
        _mm_storeu_si128(words + 1, round_to_fp16(x.high));
        return;
    }
    const __m256i packed = _mm256_packus_epi32(round_to_bf16(x.low), round_to_bf16(x.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        _mm256_permute4x64_epi64(packed, 0b11011000));
}

#include "kernels/host/attention_product.inc"
// After the products that it calls.
#include "kernels/host/attention_loops.inc"

}  // namespace

AttentionTasks attention_tasks_avx2() {
    return all_tasks;
}

void attention_exp_avx2(const float* source, float* target, int64_t count) {
    exp_all(source, target, count);
}

}  // namespace headrace::kernels
