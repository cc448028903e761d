// The AdamW rule, written down once: a sequence of fp32 operations, each rounded to nearest even,
// that every row of the table in cpu_adam/variants.h performs in this order on each element alone.
// fma, sqrt and division are correctly rounded everywhere, so equal order means equal bits: over
// instruction sets, thread counts and any cut of the elements into calls.
//
//   g = gradient * gradient_scale            unscale and clip
//   g = fma(l2, w, g)                        Adam's decay into the gradient; l2 is 0 for AdamW
//   m = fma(m_rate, g - m, m)                m_rate = 1 - beta1
//   q = min(g * g, 2^127)                    so that v never becomes infinite, however it is kept
//   v = fma(v_rate, q - v, v)                v_rate = 1 - beta2
//   r = sqrt(v)
//   d = fma(r, root_scale, epsilon)          root_scale = 1 / sqrt(1 - beta2^t)
//   u = step_size * (m / d)                  step_size = learning_rate / (1 - beta1^t)
//   w = w - fma(decay, w, u)                 decay = learning_rate * weight_decay
//
// m and v are read from the format they are kept in and rounded to it after the update, which has
// used the unrounded ones (cpu_adam/rounding.h). Then w is stored: as itself in fp32, split in
// bf16, and in fp16 beside its fp32 master, rounded to nearest even.
//
// Why these shapes: beta * m + (1 - beta) * g needs both constants, and the fp32 values nearest to
// 0.999 and 0.001 miss a sum of 1 by 1.3e-8, a relative 1.3e-5 in v; the rate form needs one. The
// decay joins the step before w is touched, so w is rounded once per step.
//
// An element with gradient 0 and weight 0 stays exactly 0 in w, m and v: padding costs nothing but
// its bytes. Gradients are finite where a verdict saw to it, and the betas are in [0, 1). Other
// gradients have one result on every row too: where m, v or w is a NaN, what is stored is the NaN
// 0x7FC00000; a gradient that is NaN or infinite makes m and w NaN or infinite and v at most 2^127.
// An fp16 weight whose master is beyond 65504 becomes infinite: the next loss shows it, where a
// clamp would train on with a weight that is not the master's.
//
// The master of a bf16 weight is split: hi = (bits + 0x8000) >> 16 is the weight that computes, lo
// = bits & 0xFFFF, and lo >= 0x8000 tells that hi was rounded up. Lossless for every value but NaN;
// every NaN becomes 0x7FC00000. Worked example, bits 0x3F80C000 (1.005859375):
//   split  hi = 0x3F81 (1.0078125), lo = 0xC000
//   join   0x3F810000 + 0xC000 - 0x10000 = 0x3F80C000
// lo 0 means that the master equals hi exactly.
//
// Plain structs only: the translation units with instruction-set flags include this header, and an
// inline function here could be kept by the linker in a form that not every machine can run.
#pragma once

#include <cstdint>

namespace headrace::cpu_adam {

// Where weight decay acts: on the weight (AdamW) or in the gradient (Adam).
enum class Decay : uint8_t { decoupled, l2 };

// One step of one group of parameters. The values of the run file in double.
struct AdamStep {
    double learning_rate = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;  // positive as fp32, so that 0 / d is 0
    double weight_decay = 0;
    uint64_t adam_step = 1;    // t, from 1: the updates done, this one included
    float gradient_scale = 1;  // 1 / loss scale * clip factor
    Decay decay = Decay::decoupled;
};

// The constants of the rule, rounded to fp32 once.
struct StepFactors {
    float gradient_scale = 1;
    float l2 = 0;
    float m_rate = 0;
    float v_rate = 0;
    float root_scale = 1;
    float epsilon = 0;
    float step_size = 0;
    float decay = 0;
    uint64_t adam_step = 1;
};

// A pure function of the step: nothing is counted or carried over, so sub-groups of one step agree
// and adam_step may jump. The powers are computed in double by squaring, not by the math library,
// whose last bit depends on the machine. CHECKs the ranges named above.
StepFactors factors_of(const AdamStep& step);

// Where the random bits of a step in a layer come from: cpu_adam/rounding.h.
struct RoundingBits {
    uint32_t first = 0;
    uint32_t second = 0;
};

// What an update leaves behind: all of it, or the new weight alone, with m, v and lo or the master
// as they were, so that the same update can be computed again. The weight's bits are the same.
enum class Writes : uint8_t { weight_and_state, weight };

// The elements of one call. Set are exactly one of each: {hi and lo, weight, weight and
// weight_fp16}, {m and v, m_bf16 and v_bf16, m_int8 and root_uint8 and steps} and
// {gradient_bf16, gradient_fp16, gradient_fp32}. Pointers need the alignment of their element only.
struct Operands {
    uint64_t element_count = 0;
    uint16_t* hi = nullptr;   // bf16 weight, the upper half of the master
    uint16_t* lo = nullptr;   // the lower half
    float* weight = nullptr;  // an fp32 weight is its own master
    float* m = nullptr;       // running mean of g
    float* v = nullptr;       // running mean of g * g
    const uint16_t* gradient_bf16 = nullptr;
    const float* gradient_fp32 = nullptr;
    const uint16_t* gradient_fp16 = nullptr;
    uint16_t* weight_fp16 = nullptr;  // then `weight` is its master
    uint16_t* m_bf16 = nullptr;
    uint16_t* v_bf16 = nullptr;
    int8_t* m_int8 = nullptr;       // in steps of the block
    uint8_t* root_uint8 = nullptr;  // of sqrt(v)
    uint16_t* steps = nullptr;      // bf16: of m, of root; per block of 32, the first begins one
    uint64_t first_element = 0;     // in the layer's flat run: numbers the random bits
    RoundingBits rounding{};
    Writes writes = Writes::weight_and_state;
};

// The rows. Each needs its instruction set; the scalar one is the oracle of the others.
void update_scalar(const StepFactors& factors, const Operands& operands);
void update_avx2(const StepFactors& factors, const Operands& operands);
void update_avx512(const StepFactors& factors, const Operands& operands);

}  // namespace headrace::cpu_adam
