// The source of the AVX-512 row, compiled against SIMDe instead of the instructions, so that its
// logic is tested where the machine lacks them. SIMDe has no names yet for some conversions; they
// are made here of AVX2 halves.
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

namespace {

[[maybe_unused]] simde__m512i joined(__m256i low, __m256i high) {
    simde__m512i_private halves;
    halves.m256i[0] = low;
    halves.m256i[1] = high;
    return simde__m512i_from_private(halves);
}

[[maybe_unused]] simde__m512 joined(__m256 low, __m256 high) {
    simde__m512_private halves;
    halves.m256[0] = low;
    halves.m256[1] = high;
    return simde__m512_from_private(halves);
}

[[maybe_unused]] __m256i half_of(simde__m512i source, int half) {
    return simde__m512i_to_private(source).m256i[half];
}

[[maybe_unused]] __m256 half_of(simde__m512 source, int half) {
    return simde__m512_to_private(source).m256[half];
}

[[maybe_unused]] simde__m512i widen_16(__m256i source) {
    return joined(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(source)),
                  _mm256_cvtepu16_epi32(_mm256_extracti128_si256(source, 1)));
}

[[maybe_unused]] simde__m512i widen_16_signed(__m256i source) {
    return joined(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(source)),
                  _mm256_cvtepi16_epi32(_mm256_extracti128_si256(source, 1)));
}

[[maybe_unused]] __m256i lower_halves(simde__m512i source) {
    const __m256i mask = _mm256_set1_epi32(0xFFFF);
    const __m256i low = _mm256_and_si256(half_of(source, 0), mask);
    const __m256i high = _mm256_and_si256(half_of(source, 1), mask);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0b11011000);
}

[[maybe_unused]] simde__m512i widen_s8(__m128i source) {
    return joined(_mm256_cvtepi8_epi32(source), _mm256_cvtepi8_epi32(_mm_srli_si128(source, 8)));
}

[[maybe_unused]] simde__m512i widen_u8(__m128i source) {
    return joined(_mm256_cvtepu8_epi32(source), _mm256_cvtepu8_epi32(_mm_srli_si128(source, 8)));
}

// Of values that are not negative.
[[maybe_unused]] __m128i saturated_u8(simde__m512i source) {
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(half_of(source, 0), half_of(source, 1)), 0b11011000);
    const __m256i capped = _mm256_min_epu16(words, _mm256_set1_epi16(255));
    return _mm_packus_epi16(_mm256_castsi256_si128(capped), _mm256_extracti128_si256(capped, 1));
}

// Of values that are not negative.
[[maybe_unused]] __m256i pairs_saturated_u8(simde__m512i source) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(half_of(source, 0), half_of(source, 1)),
                                    0b11011000);
}

[[maybe_unused]] simde__m512i pairs_u8(__m256i source) {
    return joined(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(source)),
                  _mm256_cvtepu8_epi16(_mm256_extracti128_si256(source, 1)));
}

[[maybe_unused]] simde__m512i products_of_pairs_added(simde__m512i a, simde__m512i b) {
    return joined(_mm256_madd_epi16(half_of(a, 0), half_of(b, 0)),
                  _mm256_madd_epi16(half_of(a, 1), half_of(b, 1)));
}

[[maybe_unused]] simde__m512 widen_fp16(__m256i source) {
    return joined(_mm256_cvtph_ps(_mm256_castsi256_si128(source)),
                  _mm256_cvtph_ps(_mm256_extracti128_si256(source, 1)));
}

[[maybe_unused]] __m256i narrow_fp16(simde__m512 source) {
    return _mm256_setr_m128i(_mm256_cvtps_ph(half_of(source, 0), _MM_FROUND_TO_NEAREST_INT),
                             _mm256_cvtps_ph(half_of(source, 1), _MM_FROUND_TO_NEAREST_INT));
}

[[maybe_unused]] simde__m512i nearest_ints(simde__m512 source) {
    return joined(_mm256_cvtps_epi32(half_of(source, 0)), _mm256_cvtps_epi32(half_of(source, 1)));
}

[[maybe_unused]] simde__m512 floats_of_ints(simde__m512i source) {
    return joined(_mm256_cvtepi32_ps(half_of(source, 0)), _mm256_cvtepi32_ps(half_of(source, 1)));
}

[[maybe_unused]] simde__m512i shifted_signed(simde__m512i source, int bits) {
    return joined(_mm256_srai_epi32(half_of(source, 0), bits),
                  _mm256_srai_epi32(half_of(source, 1), bits));
}

}  // namespace

#define _mm512_cvtepu16_epi32(source) widen_16(source)
#define _mm512_cvtepi16_epi32(source) widen_16_signed(source)
#define _mm512_cvtepi32_epi16(source) lower_halves(source)
#define _mm512_cvtepi8_epi32(source) widen_s8(source)
#define _mm512_cvtepu8_epi32(source) widen_u8(source)
#define _mm512_cvtusepi32_epi8(source) saturated_u8(source)
#define _mm512_cvtph_ps(source) widen_fp16(source)
#define _mm512_cvtps_ph(source, rounding) narrow_fp16(source)
#define _mm512_cvtps_epi32(source) nearest_ints(source)
#define _mm512_cvtepi32_ps(source) floats_of_ints(source)
#define _mm512_srai_epi32(source, bits) shifted_signed(source, bits)
#undef _mm512_madd_epi16  // SIMDe's takes four operands
#define _mm512_madd_epi16(a, b) products_of_pairs_added(a, b)
#define _mm512_cvtusepi16_epi8(source) pairs_saturated_u8(source)
#define _mm512_cvtepu8_epi16(source) pairs_u8(source)
#define HEADRACE_AVX512_HEADER <simde/x86/avx512.h>
#define update_avx512 update_avx512_emulated
#include "cpu_adam/adamw_avx512.cc"
