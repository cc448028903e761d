// The rule of cpu_adam/adamw.h, 16 elements at a time, with AVX-512F and BW: the primitives of
// adamw_vector.h. This file alone is compiled with those flags; nothing in it is visible outside
// but update_avx512.
#ifdef HEADRACE_AVX512_HEADER  // a test runs this source on machines without AVX-512
#include HEADRACE_AVX512_HEADER
#else
#include <immintrin.h>
#endif

#include "cpu_adam/adamw.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t lanes = 16;
constexpr uint64_t register_count = 32;

// Structs of their own, not __m512: GCC's vectors have operators too, and for another lane width.
struct Floats {
    __m512 all;
};
struct Ints {
    __m512i all;
};
static_assert(sizeof(Floats) == lanes * sizeof(float) && sizeof(Ints) == sizeof(Floats));

Floats floats(float value) {
    return {_mm512_set1_ps(value)};
}
Ints ints(uint32_t value) {
    return {_mm512_set1_epi32(static_cast<int>(value))};
}
Ints lane_numbers() {
    return {_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)};
}
Floats as_floats(Ints bits) {
    return {_mm512_castsi512_ps(bits.all)};
}
Ints as_ints(Floats values) {
    return {_mm512_castps_si512(values.all)};
}

Floats operator-(Floats a, Floats b) {
    return {_mm512_sub_ps(a.all, b.all)};
}
Floats operator*(Floats a, Floats b) {
    return {_mm512_mul_ps(a.all, b.all)};
}
Floats operator/(Floats a, Floats b) {
    return {_mm512_div_ps(a.all, b.all)};
}
Floats fma(Floats a, Floats b, Floats c) {
    return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
Floats square_root(Floats a) {
    return {_mm512_sqrt_ps(a.all)};
}
// b where a is a NaN.
Floats smaller(Floats a, Floats b) {
    return {_mm512_min_ps(a.all, b.all)};
}
// b where a is a NaN.
Floats larger(Floats a, Floats b) {
    return {_mm512_max_ps(a.all, b.all)};
}
Floats one_nan(Floats a) {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.all, a.all, _CMP_UNORD_Q);
    return as_floats({_mm512_mask_mov_epi32(as_ints(a).all, is_nan, ints(0x7FC00000u).all)});
}
struct Mask {
    __mmask16 all;
};
// The lanes where a or b is a NaN.
Mask nan_in_either(Floats a, Floats b) {
    return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_UNORD_Q)};
}
Mask operator|(Mask a, Mask b) {
    return {static_cast<__mmask16>(a.all | b.all)};
}
Mask no_lane() {
    return {0};
}
bool any(Mask a) {
    return a.all != 0;
}

Ints operator+(Ints a, Ints b) {
    return {_mm512_add_epi32(a.all, b.all)};
}
Ints operator-(Ints a, Ints b) {
    return {_mm512_sub_epi32(a.all, b.all)};
}
Ints operator&(Ints a, Ints b) {
    return {_mm512_and_si512(a.all, b.all)};
}
Ints operator^(Ints a, Ints b) {
    return {_mm512_xor_si512(a.all, b.all)};
}
Ints product(Ints a, Ints b) {
    return {_mm512_mullo_epi32(a.all, b.all)};
}
Ints larger(Ints a, Ints b) {
    return {_mm512_max_epi32(a.all, b.all)};
}
Ints larger_unsigned(Ints a, Ints b) {
    return {_mm512_max_epu32(a.all, b.all)};
}
Ints smaller(Ints a, Ints b) {
    return {_mm512_min_epi32(a.all, b.all)};
}
template <int bits>
Ints left(Ints a) {
    return {_mm512_slli_epi32(a.all, bits)};
}
template <int bits>
Ints right(Ints a) {
    return {_mm512_srli_epi32(a.all, bits)};
}
template <int bits>
Ints right_signed(Ints a) {
    return {_mm512_srai_epi32(a.all, bits)};
}
Floats to_floats(Ints a) {
    return {_mm512_cvtepi32_ps(a.all)};
}
// What is no int32 becomes the smallest.
Ints nearest(Floats a) {
    return {_mm512_cvtps_epi32(a.all)};
}
// The largest lane of m, then that of root.
void store_largest(uint32_t* target, Ints m, Ints root) {
    const __m512i both = _mm512_max_epu32(_mm512_unpacklo_epi32(m.all, root.all),
                                          _mm512_unpackhi_epi32(m.all, root.all));
    const __m256i half =
        _mm256_max_epu32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    most = _mm_max_epu32(most, _mm_unpackhi_epi64(most, most));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(target), most);
}

Ints load_32(const uint32_t* source) {
    return {_mm512_loadu_si512(source)};
}
Floats load_fp32(const float* source) {
    return {_mm512_loadu_ps(source)};
}
void store_fp32(float* target, Floats values) {
    _mm512_storeu_ps(target, values.all);
}
__m256i load_sixteen_16(const uint16_t* source) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
}
Ints load_16(const uint16_t* source) {
    return {_mm512_cvtepu16_epi32(load_sixteen_16(source))};
}
Ints load_16_signed(const uint16_t* source) {
    return {_mm512_cvtepi16_epi32(load_sixteen_16(source))};
}
// The values are below 2^16.
void store_couple_16(uint16_t* target, Ints first, Ints second) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_cvtepi32_epi16(first.all));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + lanes),
                        _mm512_cvtepi32_epi16(second.all));
}
// Two elements of 16 bits per lane, the even ones in the lower halves.
Ints load_pairs(const uint16_t* source) {
    return {_mm512_loadu_si512(source)};
}
void store_pairs(uint16_t* target, Ints pairs) {
    _mm512_storeu_si512(target, pairs.all);
}
// Both by one shuffle of bytes: the halves of each lane change places, and one of them is taken.
Ints halves_swapped(Ints keep, __mmask64 taken, Ints a) {
    const Ints order = {_mm512_set4_epi32(0x0D0C0F0E, 0x09080B0A, 0x05040706, 0x01000302)};
    return {_mm512_mask_shuffle_epi8(keep.all, taken, a.all, order.all)};
}
Ints lower_halves_of(Ints even, Ints odd) {
    return halves_swapped(even, 0xCCCCCCCCCCCCCCCCu, odd);
}
Ints upper_halves_of(Ints even, Ints odd) {
    return halves_swapped(odd, 0x3333333333333333u, even);
}
// The halves of pairs, with their signs.
Ints lower_signed(Ints pairs) {
    return {_mm512_madd_epi16(pairs.all, ints(1).all)};
}
Ints upper_signed(Ints pairs) {
    return right_signed<16>(pairs);
}
// 32 elements of 8 bits as pairs.
Ints load_pairs_s8(const int8_t* source) {
    return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)))};
}
Ints load_pairs_u8(const uint8_t* source) {
    return {_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)))};
}
// Saturated to 8 bits.
void store_pairs_s8(int8_t* target, const Ints (&pairs)[1]) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_cvtsepi16_epi8(pairs[0].all));
}
void store_pairs_u8(uint8_t* target, const Ints (&pairs)[1]) {
    const __m512i not_negative = _mm512_max_epi16(pairs[0].all, _mm512_setzero_si512());
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_cvtusepi16_epi8(not_negative));
}
Floats load_fp16(const uint16_t* source) {
    return {_mm512_cvtph_ps(load_sixteen_16(source))};
}
void store_fp16(uint16_t* target, Floats values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        _mm512_cvtps_ph(values.all, _MM_FROUND_TO_NEAREST_INT));
}
Ints load_s8(const int8_t* source) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)))};
}
Ints load_u8(const uint8_t* source) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)))};
}
// Saturated to 8 bits; the unsigned values are not negative.
void store_couple_s8(int8_t* target, Ints first, Ints second) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm512_cvtsepi32_epi8(first.all));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + lanes), _mm512_cvtsepi32_epi8(second.all));
}
void store_couple_u8(uint8_t* target, Ints first, Ints second) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm512_cvtusepi32_epi8(first.all));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + lanes),
                     _mm512_cvtusepi32_epi8(second.all));
}

}  // namespace

}  // namespace headrace::cpu_adam

#include "cpu_adam/adamw_call.h"

namespace headrace::cpu_adam {

void update_avx512(const StepFactors& factors, const Operands& o) {
    update_operands(factors, o);
}

}  // namespace headrace::cpu_adam
