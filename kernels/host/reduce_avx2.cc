// One block with AVX2, FMA and F16C, 16 elements at a time; this file alone is compiled with those
// flags.
#include <immintrin.h>

#include "kernels/host/reduce_block.h"

namespace headrace::kernels {

namespace {

// Nearest even, every NaN 0x7FC0; the bf16 bits in the lower half of each lane.
__m256i round_to_bf16(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), odd);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC0), _mm256_castps_si256(is_nan));
}

// Nearest even, too large infinite, every NaN the quiet one of its sign.
__m128i round_to_fp16(__m256 values) {
    const __m256i sign = _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(-1 << 31));
    const __m256i nan = _mm256_or_si256(sign, _mm256_set1_epi32(0x7FC00000));
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    const __m256 quiet = _mm256_blendv_ps(values, _mm256_castsi256_ps(nan), is_nan);
    return _mm256_cvtps_ph(quiet, _MM_FROUND_TO_NEAREST_INT);
}

__m256 widen(__m256i bf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(bf16, 16));
}

__m256 sum_at(const BlockOperands& operands, uint64_t i) {
    const __m256 first = _mm256_loadu_ps(operands.first_use + i);
    if (operands.second_use == nullptr) return first;
    return _mm256_add_ps(first, _mm256_loadu_ps(operands.second_use + i));
}

// lanes[0] gets elements 0 to 3, lanes[1] 4 to 7. The product is exact, so fma changes nothing.
void add_squares(__m256d* lanes, __m256 values) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(values));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1));
    lanes[0] = _mm256_fmadd_pd(low, low, lanes[0]);
    lanes[1] = _mm256_fmadd_pd(high, high, lanes[1]);
}

double join(const __m256d* lanes) {
    const __m256d eight_low = _mm256_add_pd(lanes[0], lanes[2]);   // lanes 0..3 + 8..11
    const __m256d eight_high = _mm256_add_pd(lanes[1], lanes[3]);  // lanes 4..7 + 12..15
    const __m256d four = _mm256_add_pd(eight_low, eight_high);
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

}  // namespace

double reduce_block_avx2(const BlockOperands& operands) {
    __m256d lanes[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                        _mm256_setzero_pd()};
    for (uint64_t i = 0; i < reduce_block_elements; i += 16) {
        __m256 low = sum_at(operands, i);
        __m256 high = sum_at(operands, i + 8);
        if (operands.stash_bf16 != nullptr) {
            const __m256i low_bits = round_to_bf16(low);
            const __m256i high_bits = round_to_bf16(high);
            const __m256i packed = _mm256_packus_epi32(low_bits, high_bits);  // by 64 bits: l h l h
            const __m256i ordered = _mm256_permute4x64_epi64(packed, 0b11011000);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(operands.stash_bf16 + i), ordered);
            low = widen(low_bits);
            high = widen(high_bits);
        } else if (operands.stash_fp16 != nullptr) {
            const __m128i low_bits = round_to_fp16(low);
            const __m128i high_bits = round_to_fp16(high);
            auto* const target = reinterpret_cast<__m128i*>(operands.stash_fp16 + i);
            _mm_storeu_si128(target, low_bits);
            _mm_storeu_si128(target + 1, high_bits);
            low = _mm256_cvtph_ps(low_bits);
            high = _mm256_cvtph_ps(high_bits);
        } else {
            _mm256_storeu_ps(operands.stash_fp32 + i, low);
            _mm256_storeu_ps(operands.stash_fp32 + i + 8, high);
        }
        add_squares(lanes, low);
        add_squares(lanes + 2, high);
    }
    return join(lanes);
}

}  // namespace headrace::kernels
