// Attention with AVX-512. This file alone is compiled with that flag.
#ifdef HEADRACE_AVX512_HEADER
#include HEADRACE_AVX512_HEADER
#else
#include <immintrin.h>
#endif
#include <math.h>

#include "kernels/host/attention_tile.h"
#include "kernels/host/natural_log.h"

namespace headrace::kernels {

namespace {

#include "kernels/host/attention_avx512_lanes.inc"
// After the lanes that it is made of.
#include "kernels/host/attention_product.inc"
// After the products that it calls.
#include "kernels/host/attention_loops.inc"

}  // namespace

AttentionTasks attention_tasks_avx512() {
    return all_tasks;
}

void attention_exp_avx512(const float* source, float* target, int64_t count) {
    exp_all(source, target, count);
}

}  // namespace headrace::kernels
