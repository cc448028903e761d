// The rule of cpu_adam/adamw.h over vectors, for adamw_avx2.cc and adamw_avx512.cc. Each includes
// this text once, after its primitives: so the sequence is written once, and still each instruction
// set has its own copy of every function, in its anonymous namespace. The scalar row is not made of
// it: it is the oracle.
//
// What the including file defines before: `lanes` (8 or 16), `register_count`, the vector types
// Floats and Ints (32-bit lanes), Mask (of lanes), and functions over them, each one instruction or
// a few.
#pragma once

#include "cpu_adam/adamw.h"

namespace headrace::cpu_adam {

namespace {

// How a weight, a moment or a gradient is kept: a bf16 weight as hi and lo, an fp16 weight with its
// master.
enum class Kept : uint8_t { fp32, bf16, fp16, int8 };

struct Constants {
    Floats gradient_scale, l2, m_rate, v_rate, root_scale, epsilon, step_size, decay, largest;
    Ints random_first, random_second;  // the first with the number of the lane added
};

Constants constants_of(const StepFactors& factors, const Operands& o) {
    return {.gradient_scale = floats(factors.gradient_scale),
            .l2 = floats(factors.l2),
            .m_rate = floats(factors.m_rate),
            .v_rate = floats(factors.v_rate),
            .root_scale = floats(factors.root_scale),
            .epsilon = floats(factors.epsilon),
            .step_size = floats(factors.step_size),
            .decay = floats(factors.decay),
            .largest = floats(0x1p127f),
            .random_first =
                ints(o.rounding.first + static_cast<uint32_t>(o.first_element)) + lane_numbers(),
            .random_second = ints(o.rounding.second)};
}

// Of one vector of elements.
struct Moments {
    Floats m, v;
};

// The rule, first half: from the old m and v to the new ones. A NaN is still any NaN.
Moments new_moments(const Constants& c, Floats w, Floats gradient, const Moments& old) {
    const Floats g = fma(c.l2, w, gradient * c.gradient_scale);
    const Floats q = smaller(g * g, c.largest);
    return {.m = fma(c.m_rate, g - old.m, old.m), .v = fma(c.v_rate, q - old.v, old.v)};
}

// The second half: the new weight, from m / d.
Floats divisor(const Constants& c, Floats root) {
    return fma(root, c.root_scale, c.epsilon);
}
Floats new_weight(const Constants& c, Floats w, Floats quotient) {
    return w - fma(c.decay, w, c.step_size * quotient);
}

// Random bits but for their last line, x ^ x >> 16, which leaves the upper half as it is. x starts
// as the elements' numbers and c.random_first together.
Ints random_bits(Ints x, Ints second) {
    x = product(x ^ right<16>(x), ints(0x7FEB352Du));
    return product((x ^ right<15>(x)) + second, ints(0x846CA68Bu));
}

Ints low_16(Ints values) {
    return values & ints(0xFFFFu);
}

// The halves of random bits, the last line done.
Ints bits_for_m(Ints random) {
    return low_16(random ^ right<16>(random));
}
Ints bits_for_v(Ints random) {
    return right<16>(random);
}

}  // namespace

}  // namespace headrace::cpu_adam
