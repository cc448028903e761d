// Attention of bf16 with scores from products of bf16 (AVX512-BF16): twice as many a second as of
// fp32. This file alone is compiled with that flag.
#include <immintrin.h>
#include <math.h>

#include "kernels/host/attention_tile.h"
#include "kernels/host/natural_log.h"

namespace headrace::kernels {

namespace {

#include "kernels/host/attention_avx512_lanes.inc"

__m512bh as_pairs(Lanes slots) {
    return reinterpret_cast<__m512bh>(slots.all);
}

// Slots of two elements of bf16. The second ones' product is added first; denormal values are
// zeros.
struct Pairs {
    static constexpr int64_t slot_elements = 2;
    static Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
        return {_mm512_dpbf16_ps(c.all, as_pairs(a), as_pairs(b))};
    }
};

// Sixteen slots as they are.
Lanes words(const char* source) {
    return {_mm512_castsi512_ps(_mm512_loadu_si512(source))};
}

#define HEADRACE_ATTENTION_PAIRS
#include "kernels/host/attention_product.inc"
// After the products that it calls.
#include "kernels/host/attention_loops.inc"

}  // namespace

AttentionTasks attention_tasks_avx512_bf16() {
    return all_tasks;
}

}  // namespace headrace::kernels
