// The oracle of the row with scores from products of bf16: its loops over lanes that are an array,
// with what AVX512-BF16 promises of its product written out: denormal values are zeros, on the way
// in and out, and the second elements of the pairs are multiplied and added first.
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/host/attention_tile.h"
#include "kernels/host/natural_log.h"
#include "offload/fp16.h"

namespace headrace::kernels {

AttentionTasks attention_tasks_bf16_oracle();

namespace {

#include "kernels/host/attention_scalar_lanes.inc"

float without_denormals(float x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
float element_of(float slot, int half) {
    const auto bits = std::bit_cast<uint32_t>(slot);
    const uint32_t word = half == 0 ? bits << 16 : bits & 0xFFFF0000u;
    return without_denormals(std::bit_cast<float>(word));
}

struct Pairs {
    static constexpr int64_t slot_elements = 2;
    static Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
        return each([&](int i) {
            float sum = without_denormals(c.at[i]);
            for (int half = 1; half >= 0; --half) {
                sum = without_denormals(
                    std::fma(element_of(a.at[i], half), element_of(b.at[i], half), sum));
            }
            return sum;
        });
    }
};

Lanes words(const char* source) {
    Lanes slots;
    std::memcpy(slots.at, source, sizeof slots.at);
    return slots;
}

#define HEADRACE_ATTENTION_PAIRS
#include "kernels/host/attention_product.inc"
// After the products that it calls.
#include "kernels/host/attention_loops.inc"

}  // namespace

AttentionTasks attention_tasks_bf16_oracle() {
    return all_tasks;
}

}  // namespace headrace::kernels
