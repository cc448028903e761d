// The arithmetic of kernels/adamw_rule.h, for whichever compiler includes it. Every operation is
// rounded to nearest even, and none may be fused or split by a compiler. On the host
// -ffp-contract=off sees to it; on the card each is named by the intrinsic that says so, for which
// there is no other code to choose (ptxas may fuse a bare a * b + c, but no *_rn).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define HEADRACE_ANYWHERE __host__ __device__
#else
#define HEADRACE_ANYWHERE
#endif

namespace headrace::kernels::adamw_rule {

namespace {

#if defined(__CUDA_ARCH__)
HEADRACE_ANYWHERE inline float fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}
HEADRACE_ANYWHERE inline float multiply(float a, float b) {
    return __fmul_rn(a, b);
}
HEADRACE_ANYWHERE inline float subtract(float a, float b) {
    return __fsub_rn(a, b);
}
HEADRACE_ANYWHERE inline float divide(float a, float b) {
    return __fdiv_rn(a, b);
}
HEADRACE_ANYWHERE inline float root(float a) {
    return __fsqrt_rn(a);
}
HEADRACE_ANYWHERE inline int32_t nearest_int(float value) {
    return __float2int_rn(value);
}
HEADRACE_ANYWHERE inline float as_float(uint32_t bits) {
    return __uint_as_float(bits);
}
HEADRACE_ANYWHERE inline uint32_t as_bits(float value) {
    return __float_as_uint(value);
}
#else
HEADRACE_ANYWHERE inline float fma(float a, float b, float c) {
    return std::fma(a, b, c);
}
HEADRACE_ANYWHERE inline float multiply(float a, float b) {
    return a * b;
}
HEADRACE_ANYWHERE inline float subtract(float a, float b) {
    return a - b;
}
HEADRACE_ANYWHERE inline float divide(float a, float b) {
    return a / b;
}
HEADRACE_ANYWHERE inline float root(float a) {
    return std::sqrt(a);
}
HEADRACE_ANYWHERE inline int32_t nearest_int(float value) {
    return static_cast<int32_t>(std::nearbyint(value));
}
HEADRACE_ANYWHERE inline float as_float(uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));  // std::bit_cast is C++20, nvcc here is given 17
    return value;
}
HEADRACE_ANYWHERE inline uint32_t as_bits(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}
#endif

}  // namespace

}  // namespace headrace::kernels::adamw_rule
