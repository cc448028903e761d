// The source of the AVX-512 row, compiled against SIMDe instead of the instructions, so that its
// logic is tested where the machine lacks them. SIMDe has no names yet for the two 16-bit
// conversions; they are made here of AVX2 halves.
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

namespace {

[[maybe_unused]] simde__m512i widen_16(__m256i source) {
    simde__m512i_private halves;
    halves.m256i[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(source));
    halves.m256i[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(source, 1));
    return simde__m512i_from_private(halves);
}

[[maybe_unused]] __m256i lower_halves(simde__m512i source) {
    const simde__m512i_private halves = simde__m512i_to_private(source);
    const __m256i mask = _mm256_set1_epi32(0xFFFF);
    const __m256i low = _mm256_and_si256(halves.m256i[0], mask);
    const __m256i high = _mm256_and_si256(halves.m256i[1], mask);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0b11011000);
}

}  // namespace

#define _mm512_cvtepu16_epi32(source) widen_16(source)
#define _mm512_cvtepi32_epi16(source) lower_halves(source)
#define HEADRACE_AVX512_HEADER <simde/x86/avx512.h>
#define update_avx512 update_avx512_emulated
#include "cpu_adam/adamw_avx512.cc"
