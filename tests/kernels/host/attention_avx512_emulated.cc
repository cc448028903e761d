// The source of the AVX-512 row, compiled against SIMDe instead of the instructions, so that its
// logic is tested where the machine lacks them. SIMDe has no names yet for some conversions; they
// are made here of AVX2 halves.
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

namespace {

simde__m512i joined(__m256i low, __m256i high) {
    simde__m512i_private halves;
    halves.m256i[0] = low;
    halves.m256i[1] = high;
    return simde__m512i_from_private(halves);
}

__m256i half_of(simde__m512i source, int half) {
    return simde__m512i_to_private(source).m256i[half];
}

__m256 half_of(simde__m512 source, int half) {
    return simde__m512_to_private(source).m256[half];
}

simde__m512i widen_16(__m256i source) {
    return joined(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(source)),
                  _mm256_cvtepu16_epi32(_mm256_extracti128_si256(source, 1)));
}

__m256i lower_halves(simde__m512i source) {
    const __m256i mask = _mm256_set1_epi32(0xFFFF);
    const __m256i low = _mm256_and_si256(half_of(source, 0), mask);
    const __m256i high = _mm256_and_si256(half_of(source, 1), mask);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0b11011000);
}

simde__m512 widen_fp16(__m256i source) {
    simde__m512_private halves;
    halves.m256[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(source));
    halves.m256[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(source, 1));
    return simde__m512_from_private(halves);
}

__m256i narrow_fp16(simde__m512 source) {
    return _mm256_setr_m128i(_mm256_cvtps_ph(half_of(source, 0), _MM_FROUND_TO_NEAREST_INT),
                             _mm256_cvtps_ph(half_of(source, 1), _MM_FROUND_TO_NEAREST_INT));
}

simde__m512i nearest_ints(simde__m512 source) {
    return joined(_mm256_cvtps_epi32(half_of(source, 0)), _mm256_cvtps_epi32(half_of(source, 1)));
}

}  // namespace

#define _mm512_cvtepu16_epi32(source) widen_16(source)
#define _mm512_cvtepi32_epi16(source) lower_halves(source)
#define _mm512_cvtph_ps(source) widen_fp16(source)
#define _mm512_cvtps_ph(source, rounding) narrow_fp16(source)
#define _mm512_cvtps_epi32(source) nearest_ints(source)
#define HEADRACE_AVX512_HEADER <simde/x86/avx512.h>
#define attention_tasks_avx512 attention_tasks_avx512_emulated
#define attention_exp_avx512 attention_exp_avx512_emulated
#include "kernels/host/attention_avx512.cc"
