// The vectors that the row kernels are written with (kernels/host/row_kernels.h): formats, loops
// over a row, sums, exp. Included once by one file per instruction set, which says in
// HEADRACE_LANES how many lanes its vectors have. Everything has internal linkage, so that no copy
// made for one instruction set can serve another.
//
// GCC's vector types, of as many lanes as the instruction set has: wider ones would be taken apart
// into single elements. Nothing is contracted (-ffp-contract=off) and no sum is reordered, so lanes
// have the same bits everywhere.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#define HEADRACE_INLINE [[gnu::always_inline]] inline

namespace headrace::kernels {

namespace {

constexpr int64_t lane_count = HEADRACE_LANES;
static_assert(lane_count == 4 || lane_count == 8 || lane_count == 16);
using Floats = float __attribute__((vector_size(4 * lane_count)));
using Words = uint32_t __attribute__((vector_size(4 * lane_count)));
using Halves = uint16_t __attribute__((vector_size(2 * lane_count)));

HEADRACE_INLINE Floats all(float value) {
    return Floats{} + value;
}
HEADRACE_INLINE Words bits_of(Floats values) {
    return reinterpret_cast<Words>(values);
}
HEADRACE_INLINE Floats floats_of(Words bits) {
    return reinterpret_cast<Floats>(bits);
}
HEADRACE_INLINE Floats magnitude(Floats values) {
    return floats_of(bits_of(values) & 0x7FFFFFFFu);
}

HEADRACE_INLINE Words load_halves(const uint16_t* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof(halves));
#ifdef __AVX512F__  // one instruction; GCC 12 would make five of it
    return reinterpret_cast<Words>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(halves)));
#else
    return __builtin_convertvector(halves, Words);
#endif
}

// ---- formats: a vector of elements into fp32 lanes and back
// -------------------------------------------

struct Fp32 {
    using Type = float;
    static constexpr bool rounds = false;
    HEADRACE_INLINE static Floats widen(const Type* from) {
        Floats values;
        std::memcpy(&values, from, sizeof(values));
        return values;
    }
    HEADRACE_INLINE static void store(Type* to, Floats values) {
        std::memcpy(to, &values, sizeof(values));
    }
    HEADRACE_INLINE static Floats round(Floats values) { return values; }
};

struct Bf16 {
    using Type = uint16_t;
    static constexpr bool rounds = true;
    HEADRACE_INLINE static Floats widen(const Type* from) {
        return floats_of(load_halves(from) << 16);
    }
    // The rounded bits in the upper half of each lane.
    HEADRACE_INLINE static Words upper(Floats values) {
        const Words bits = bits_of(values);
        const Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
        return values == values ? rounded : Words{} + 0x7FC00000u;
    }
    HEADRACE_INLINE static void store(Type* to, Floats values) {
        const Halves halves = __builtin_convertvector(upper(values) >> 16, Halves);
        std::memcpy(to, &halves, sizeof(halves));
    }
    HEADRACE_INLINE static Floats round(Floats values) { return floats_of(upper(values)); }
};

struct Fp16 {
    using Type = uint16_t;
    static constexpr bool rounds = true;
    HEADRACE_INLINE static Floats widen_bits(Words bits) {
        const Words rest = (bits & 0x7FFFu) << 13;
        // Exponents count from 2^-14 instead of 2^-126; a product with 2^112 is exact.
        const Words finite = bits_of(floats_of(rest) * all(0x1p112f));
        const Words special = rest | 0x7F800000u;
        const Words value = (bits & 0x7C00u) == 0x7C00u ? special : finite;
        return floats_of(value | ((bits & 0x8000u) << 16));
    }
    HEADRACE_INLINE static Floats widen(const Type* from) { return widen_bits(load_halves(from)); }
    HEADRACE_INLINE static Words narrow(Floats values) {
        const Words bits = bits_of(values);
        const Words rest = bits & 0x7FFFFFFFu;
        // From 2^-14 on: 13 bits are rounded off and the exponent moved; what overflows is
        // infinity.
        const Words carried = rest + 0xFFFu + ((rest >> 13) & 1u);
        const Words normal = (carried - (112u << 23)) >> 13;
        // Below: a sum with 1/2, whose last place is 2^-24, rounds to a multiple of 2^-24.
        const Words small = bits_of(floats_of(rest) + all(0.5f)) - 0x3F000000u;
        Words value = rest < 0x38800000u ? small : normal;
        value = rest >= 0x477FF000u ? Words{} + 0x7C00u : value;
        value = rest > 0x7F800000u ? Words{} + 0x7E00u : value;
        return value | ((bits >> 16) & 0x8000u);
    }
    HEADRACE_INLINE static void store(Type* to, Floats values) {
        const Halves halves = __builtin_convertvector(narrow(values), Halves);
        std::memcpy(to, &halves, sizeof(halves));
    }
    HEADRACE_INLINE static Floats round(Floats values) { return widen_bits(narrow(values)); }
};

// ---- loops: whole vectors, then the rest through a copy whose other lanes are zero
// ---------------

struct Whole {};
struct Rest {
    int64_t count;
};

template <class Format>
HEADRACE_INLINE Floats load(const typename Format::Type* from, Whole) {
    return Format::widen(from);
}
template <class Format>
HEADRACE_INLINE Floats load(const typename Format::Type* from, Rest rest) {
    typename Format::Type lanes[lane_count] = {};
    std::memcpy(lanes, from, static_cast<size_t>(rest.count) * sizeof(lanes[0]));
    return Format::widen(lanes);
}
template <class Format>
HEADRACE_INLINE void store(typename Format::Type* to, Floats values, Whole) {
    Format::store(to, values);
}
template <class Format>
HEADRACE_INLINE void store(typename Format::Type* to, Floats values, Rest rest) {
    typename Format::Type lanes[lane_count];
    Format::store(lanes, values);
    std::memcpy(to, lanes, static_cast<size_t>(rest.count) * sizeof(lanes[0]));
}

template <class Body>
HEADRACE_INLINE void for_lanes(int64_t element_count, const Body& body) {
    int64_t i = 0;
    for (; i + lane_count <= element_count; i += lane_count) body(i, Whole{});
    if (i < element_count) body(i, Rest{element_count - i});
}

// The sum of `term` over a row: element i in lane i % 16, lanes joined by halves.
constexpr int64_t sum_lane_count = 16;
constexpr int64_t sum_vectors = sum_lane_count / lane_count;
static_assert(sum_lane_count % lane_count == 0);

template <class Term>
HEADRACE_INLINE float sum_lanes(int64_t element_count, const Term& term) {
    Floats sums[sum_vectors] = {};
    int64_t i = 0;
    for (; i + sum_lane_count <= element_count; i += sum_lane_count) {
        for (int64_t k = 0; k < sum_vectors; ++k) sums[k] += term(i + k * lane_count, Whole{});
    }
    for (int64_t k = 0; i < element_count; ++k, i += lane_count) {
        const int64_t left = element_count - i;
        sums[k] += left < lane_count ? term(i, Rest{left}) : term(i, Whole{});
    }
    float lanes[sum_lane_count];
    std::memcpy(lanes, sums, sizeof(lanes));
    for (int64_t half = sum_lane_count / 2; half > 0; half /= 2) {
        for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
}

// 2^n times a polynomial in the rest, n the nearest integer to x / ln 2 (Cody and Waite's two-part
// ln 2; coefficients of Cephes' expf). x is held in [-87.3, 88.3], where 2^n is normal.
HEADRACE_INLINE Floats exp_of(Floats x) {
    x = x < -87.3f ? all(-87.3f) : x;
    x = x > 88.3f ? all(88.3f) : x;
    const Floats shifted = x * 1.44269504088896341f + 12582912.0f;  // n in the last bits
    const Floats n = shifted - 12582912.0f;
    const Floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Floats p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    return p * floats_of((bits_of(shifted) << 23) + 0x3F800000u);
}

HEADRACE_INLINE Floats sigmoid(Floats x) {
    return 1.0f / (1.0f + exp_of(-x));
}

}  // namespace

}  // namespace headrace::kernels
