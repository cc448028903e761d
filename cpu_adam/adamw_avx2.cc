// The rule of cpu_adam/adamw.h, 8 elements at a time, with AVX2, FMA and F16C: the primitives of
// adamw_vector.h. This file alone is compiled with those flags; nothing in it is visible outside
// but update_avx2.
#include <immintrin.h>

#include "cpu_adam/adamw.h"

namespace headrace::cpu_adam {

namespace {

constexpr uint64_t lanes = 8;
constexpr uint64_t register_count = 16;

// Structs of their own, not __m256: GCC's vectors have operators too, and for another lane width.
struct Floats {
    __m256 all;
};
struct Ints {
    __m256i all;
};
static_assert(sizeof(Floats) == lanes * sizeof(float) && sizeof(Ints) == sizeof(Floats));

Floats floats(float value) {
    return {_mm256_set1_ps(value)};
}
Ints ints(uint32_t value) {
    return {_mm256_set1_epi32(static_cast<int>(value))};
}
Ints lane_numbers() {
    return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)};
}
Floats as_floats(Ints bits) {
    return {_mm256_castsi256_ps(bits.all)};
}
Ints as_ints(Floats values) {
    return {_mm256_castps_si256(values.all)};
}

Floats operator-(Floats a, Floats b) {
    return {_mm256_sub_ps(a.all, b.all)};
}
Floats operator*(Floats a, Floats b) {
    return {_mm256_mul_ps(a.all, b.all)};
}
Floats operator/(Floats a, Floats b) {
    return {_mm256_div_ps(a.all, b.all)};
}
Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.all, b.all, c.all)};
}
Floats square_root(Floats a) {
    return {_mm256_sqrt_ps(a.all)};
}
// b where a is a NaN.
Floats smaller(Floats a, Floats b) {
    return {_mm256_min_ps(a.all, b.all)};
}
// b where a is a NaN.
Floats larger(Floats a, Floats b) {
    return {_mm256_max_ps(a.all, b.all)};
}
Floats one_nan(Floats a) {
    const __m256 is_nan = _mm256_cmp_ps(a.all, a.all, _CMP_UNORD_Q);
    return {_mm256_blendv_ps(a.all, as_floats(ints(0x7FC00000u)).all, is_nan)};
}
struct Mask {
    __m256 all;
};
// The lanes where a or b is a NaN.
Mask nan_in_either(Floats a, Floats b) {
    return {_mm256_cmp_ps(a.all, b.all, _CMP_UNORD_Q)};
}
Mask operator|(Mask a, Mask b) {
    return {_mm256_or_ps(a.all, b.all)};
}
Mask no_lane() {
    return {_mm256_setzero_ps()};
}
bool any(Mask a) {
    return _mm256_movemask_ps(a.all) != 0;
}

Ints operator+(Ints a, Ints b) {
    return {_mm256_add_epi32(a.all, b.all)};
}
Ints operator-(Ints a, Ints b) {
    return {_mm256_sub_epi32(a.all, b.all)};
}
Ints operator&(Ints a, Ints b) {
    return {_mm256_and_si256(a.all, b.all)};
}
Ints operator^(Ints a, Ints b) {
    return {_mm256_xor_si256(a.all, b.all)};
}
Ints product(Ints a, Ints b) {
    return {_mm256_mullo_epi32(a.all, b.all)};
}
Ints larger(Ints a, Ints b) {
    return {_mm256_max_epi32(a.all, b.all)};
}
Ints larger_unsigned(Ints a, Ints b) {
    return {_mm256_max_epu32(a.all, b.all)};
}
Ints smaller(Ints a, Ints b) {
    return {_mm256_min_epi32(a.all, b.all)};
}
template <int bits>
Ints left(Ints a) {
    return {_mm256_slli_epi32(a.all, bits)};
}
template <int bits>
Ints right(Ints a) {
    return {_mm256_srli_epi32(a.all, bits)};
}
template <int bits>
Ints right_signed(Ints a) {
    return {_mm256_srai_epi32(a.all, bits)};
}
Floats to_floats(Ints a) {
    return {_mm256_cvtepi32_ps(a.all)};
}
// What is no int32 becomes the smallest.
Ints nearest(Floats a) {
    return {_mm256_cvtps_epi32(a.all)};
}
// The largest lane of m, then that of root.
void store_largest(uint32_t* target, Ints m, Ints root) {
    const __m256i both = _mm256_max_epu32(_mm256_unpacklo_epi32(m.all, root.all),
                                          _mm256_unpackhi_epi32(m.all, root.all));
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    most = _mm_max_epu32(most, _mm_unpackhi_epi64(most, most));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(target), most);
}

Ints load_32(const uint32_t* source) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))};
}
Floats load_fp32(const float* source) {
    return {_mm256_loadu_ps(source)};
}
void store_fp32(float* target, Floats values) {
    _mm256_storeu_ps(target, values.all);
}
__m128i load_eight_16(const uint16_t* source) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
}
Ints load_16(const uint16_t* source) {
    return {_mm256_cvtepu16_epi32(load_eight_16(source))};
}
Ints load_16_signed(const uint16_t* source) {
    return {_mm256_cvtepi16_epi32(load_eight_16(source))};
}
// The values are below 2^16.
void store_couple_16(uint16_t* target, Ints first, Ints second) {
    const __m256i packed = _mm256_packus_epi32(first.all, second.all);  // a0 b0 a1 b1, by 64 bits
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        _mm256_permute4x64_epi64(packed, 0b11011000));
}
// Two elements of 16 bits per lane, the even ones in the lower halves.
Ints load_pairs(const uint16_t* source) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))};
}
void store_pairs(uint16_t* target, Ints pairs) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), pairs.all);
}
Ints lower_halves_of(Ints even, Ints odd) {
    return {_mm256_blend_epi16(even.all, left<16>(odd).all, 0xAA)};
}
Ints upper_halves_of(Ints even, Ints odd) {
    return {_mm256_blend_epi16(right<16>(even).all, odd.all, 0xAA)};
}
// The halves of pairs, with their signs.
Ints lower_signed(Ints pairs) {
    return {_mm256_madd_epi16(pairs.all, ints(1).all)};
}
Ints upper_signed(Ints pairs) {
    return {_mm256_madd_epi16(pairs.all, ints(0x10000u).all)};
}
// 16 elements of 8 bits as pairs.
Ints load_pairs_s8(const int8_t* source) {
    return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)))};
}
Ints load_pairs_u8(const uint8_t* source) {
    return {_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)))};
}
void store_32_bytes(void* target, __m256i packed) {  // a0 b0 a1 b1, by 64 bits
    _mm256_storeu_si256(static_cast<__m256i*>(target),
                        _mm256_permute4x64_epi64(packed, 0b11011000));
}
// Saturated to 8 bits.
void store_pairs_s8(int8_t* target, const Ints (&pairs)[2]) {
    store_32_bytes(target, _mm256_packs_epi16(pairs[0].all, pairs[1].all));
}
void store_pairs_u8(uint8_t* target, const Ints (&pairs)[2]) {
    store_32_bytes(target, _mm256_packus_epi16(pairs[0].all, pairs[1].all));
}
Floats load_fp16(const uint16_t* source) {
    return {_mm256_cvtph_ps(load_eight_16(source))};
}
void store_fp16(uint16_t* target, Floats values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                     _mm256_cvtps_ph(values.all, _MM_FROUND_TO_NEAREST_INT));
}
Ints load_s8(const int8_t* source) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(source)))};
}
Ints load_u8(const uint8_t* source) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(source)))};
}

// 16 values of 16 bits, saturated, in their order.
__m256i couple_16(Ints first, Ints second) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(first.all, second.all), 0b11011000);
}
// Saturated to 8 bits.
void store_couple_s8(int8_t* target, Ints first, Ints second) {
    const __m256i both = couple_16(first, second);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(target),
        _mm_packs_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}
void store_couple_u8(uint8_t* target, Ints first, Ints second) {
    const __m256i both = couple_16(first, second);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(target),
        _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}

}  // namespace

}  // namespace headrace::cpu_adam

#include "cpu_adam/adamw_call.h"

namespace headrace::cpu_adam {

void update_avx2(const StepFactors& factors, const Operands& o) {
    update_operands(factors, o);
}

}  // namespace headrace::cpu_adam
