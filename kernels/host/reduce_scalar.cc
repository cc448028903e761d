// The oracle of the reduce rows.
#include "kernels/host/reduce_block.h"
#include "offload/dtype.h"
#include "offload/fp16.h"

namespace headrace::kernels {

namespace {

constexpr uint64_t lane_count = 16;

}  // namespace

double reduce_block_scalar(const BlockOperands& operands) {
    double lanes[lane_count] = {};
    for (uint64_t i = 0; i < reduce_block_elements; ++i) {
        float sum = operands.first_use[i];
        if (operands.second_use != nullptr) sum += operands.second_use[i];
        if (operands.stash_bf16 != nullptr) {
            operands.stash_bf16[i] = offload::float_to_bf16(sum);
            sum = offload::bf16_to_float(operands.stash_bf16[i]);
        } else if (operands.stash_fp16 != nullptr) {
            operands.stash_fp16[i] = offload::float_to_fp16(sum);
            sum = offload::fp16_to_float(operands.stash_fp16[i]);
        } else {
            operands.stash_fp32[i] = sum;
        }
        lanes[i % lane_count] += static_cast<double>(sum) * static_cast<double>(sum);
    }
    for (uint64_t half = lane_count / 2; half > 0; half /= 2) {
        for (uint64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
}

}  // namespace headrace::kernels
