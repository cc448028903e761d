// The AdamW update for states that live in a device's memory: what every device that updates must
// do, its operands, and the host twin, which is the oracle of the others. The rule is that of
// cpu_adam, which kernels may not include: the same operations in the same order (written once for
// all devices in kernels/adamw_rule.h), so that a part's bits do not depend on where its states
// live. tests/kernels/host/adamw_test.cc holds the two equal, tests/kernels/cuda/adamw_test.cc the
// card and the host twin.
//
// Formats: moments in fp32, or in bf16 or int8 rounded at random as cpu_adam/rounding.h says; with
// a bf16 weight whose fp32 master is split into hi and lo, or with an fp32 weight; gradients in
// bf16 or fp32. (Not yet: fp16 weights and gradients.) An element of zeros stays zero. Every
// NaN that is stored is 0x7FC00000.
//
// Plain structs only: this header is compiled by nvcc too, and crosses the border of the module.
#pragma once

#include <cstdint>

namespace headrace::kernels {

// The constants of one step, fp32: the fields of cpu_adam's StepFactors, which makes them.
struct UpdateFactors {
    float gradient_scale = 1;  // unscale and clip
    float l2 = 0;              // decay in the gradient; 0 for AdamW
    float m_rate = 0;          // 1 - beta1
    float v_rate = 0;          // 1 - beta2
    float root_scale = 1;      // 1 / sqrt(1 - beta2^t)
    float epsilon = 0;
    float step_size = 0;  // learning rate / (1 - beta1^t)
    float decay = 0;      // learning rate * weight decay
};
static_assert(sizeof(UpdateFactors) == 8 * sizeof(float));

// Where the random bits of a step in a layer come from: the fields of cpu_adam's RoundingBits.
struct RoundingBits {
    uint32_t first = 0;
    uint32_t second = 0;
};

// The elements of one call, in the memory of the device that updates them. Set are exactly one of
// each: {hi and lo, weight}, {m and v, m_bf16 and v_bf16, m_int8 and root_uint8 and steps} and
// {gradient_bf16, gradient_fp32}. In int8 the first element begins a block of 32 of the layer.
// Aligned to 16 bytes, as every block of a part is in every slot.
struct UpdateOperands {
    uint64_t element_count = 0;
    uint16_t* hi = nullptr;   // bf16 weight, the upper half of the master
    uint16_t* lo = nullptr;   // the lower half
    float* weight = nullptr;  // an fp32 weight is its own master
    float* m = nullptr;       // running mean of g
    float* v = nullptr;       // running mean of g * g
    const uint16_t* gradient_bf16 = nullptr;
    const float* gradient_fp32 = nullptr;
    uint16_t* m_bf16 = nullptr;
    uint16_t* v_bf16 = nullptr;
    uint64_t first_element = 0;  // in the layer's flat run: numbers the random bits
    RoundingBits rounding{};
    int8_t* m_int8 = nullptr;       // in steps of the block
    uint8_t* root_uint8 = nullptr;  // of sqrt(v)
    uint16_t* steps = nullptr;      // bf16: of m, of root; per block of 32
};
static_assert(sizeof(UpdateOperands) == 15 * sizeof(uint64_t));

// The first broken rule of the comment above, or null.
const char* find_fault(const UpdateOperands& operands);

// The host twin. Plain code, one thread: an oracle, not the update of a run on the host (that is
// cpu_adam). CHECKs find_fault; the calling thread rounds to nearest and keeps denormals.
void update_on_host(const UpdateFactors& factors, const UpdateOperands& operands);

}  // namespace headrace::kernels
