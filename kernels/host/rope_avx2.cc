// Rotary positions with AVX2, FMA and F16C, 8 pairs at a time; this file alone is compiled with
// those flags. A rest of fewer than 8 goes through a filled-up copy.
#include <immintrin.h>

#include "kernels/host/rope_span.h"

namespace headrace::kernels {

namespace {

using offload::Dtype;

constexpr int64_t lanes = 8;

__m256 widen(const char* source, Dtype dtype) {
    if (dtype == Dtype::fp32) return _mm256_loadu_ps(reinterpret_cast<const float*>(source));
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    if (dtype == Dtype::fp16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// Nearest even, every NaN 0x7FC0.
__m128i round_to_bf16(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), odd);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    const __m256i all =
        _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC0), _mm256_castps_si256(is_nan));
    return _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

// Nearest even, every NaN the quiet one of its sign.
__m128i round_to_fp16(__m256 values) {
    const __m256 sign = _mm256_and_ps(values, _mm256_set1_ps(-0.0f));
    const __m256 nan = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    return _mm256_cvtps_ph(_mm256_blendv_ps(values, nan, is_nan), _MM_FROUND_TO_NEAREST_INT);
}

void narrow(char* target, __m256 x, Dtype dtype) {
    if (dtype == Dtype::fp32) return _mm256_storeu_ps(reinterpret_cast<float*>(target), x);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                     dtype == Dtype::bf16 ? round_to_bf16(x) : round_to_fp16(x));
}

void copy(char* target, const char* source, int64_t byte_count) {
    for (int64_t i = 0; i < byte_count; ++i) target[i] = source[i];
}

// Pairs of one head; low and high hold at least 8 elements each.
void turn_eight(char* low, char* high, Dtype dtype, __m256 cosine, __m256 sine) {
    const __m256 old_low = widen(low, dtype);
    const __m256 old_high = widen(high, dtype);
    narrow(low, _mm256_fnmadd_ps(old_high, sine, _mm256_mul_ps(old_low, cosine)), dtype);
    narrow(high, _mm256_fmadd_ps(old_low, sine, _mm256_mul_ps(old_high, cosine)), dtype);
}

// The last `count` < 8 pairs.
void turn_rest(char* low, char* high, Dtype dtype, const float* cosine, const float* sine,
               int64_t count, __m256 sign) {
    const int64_t byte_count = count * (dtype == Dtype::fp32 ? 4 : 2);
    char lows[32] = {}, highs[32] = {};
    float cosines[8] = {}, sines[8] = {};
    copy(lows, low, byte_count);
    copy(highs, high, byte_count);
    for (int64_t i = 0; i < count; ++i) {
        cosines[i] = cosine[i];
        sines[i] = sine[i];
    }
    turn_eight(lows, highs, dtype, _mm256_loadu_ps(cosines),
               _mm256_xor_ps(_mm256_loadu_ps(sines), sign));
    copy(low, lows, byte_count);
    copy(high, highs, byte_count);
}

}  // namespace

void turn_tokens_avx2(const RopeOperands& o, int64_t first_token, int64_t last_token) {
    auto* const x = static_cast<char*>(o.x);
    const int64_t element_bytes = o.dtype == Dtype::fp32 ? 4 : 2;
    const __m256 sign = _mm256_set1_ps(o.is_back ? -0.0f : 0.0f);
    const int64_t whole = o.pair_count / lanes * lanes;
    for (int64_t token = first_token; token < last_token; ++token) {
        const int64_t start = o.sample_starts == nullptr ? 0 : o.sample_starts[token];
        const int64_t angles = (token % o.column_count - start) * o.pair_count;
        const float* cosine = o.cosine + angles;
        const float* sine = o.sine + angles;
        for (int64_t head = 0; head < o.head_count; ++head) {
            char* low = x + (token * o.head_count + head) * 2 * o.pair_count * element_bytes;
            char* high = low + o.pair_count * element_bytes;
            for (int64_t i = 0; i < whole; i += lanes) {
                turn_eight(low + i * element_bytes, high + i * element_bytes, o.dtype,
                           _mm256_loadu_ps(cosine + i),
                           _mm256_xor_ps(_mm256_loadu_ps(sine + i), sign));
            }
            if (whole == o.pair_count) continue;
            turn_rest(low + whole * element_bytes, high + whole * element_bytes, o.dtype,
                      cosine + whole, sine + whole, o.pair_count - whole, sign);
        }
    }
}

}  // namespace headrace::kernels
