// The oracle of attention's rows.
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/host/attention_tile.h"
#include "kernels/host/natural_log.h"
#include "offload/fp16.h"

namespace headrace::kernels {

namespace {

#include "kernels/host/attention_scalar_lanes.inc"
// After the lanes that it is made of.
#include "kernels/host/attention_product.inc"
// After the products that it calls.
#include "kernels/host/attention_loops.inc"

}  // namespace

AttentionTasks attention_tasks_scalar() {
    return all_tasks;
}

void attention_exp_scalar(const float* source, float* target, int64_t count) {
    exp_all(source, target, count);
}

}  // namespace headrace::kernels
