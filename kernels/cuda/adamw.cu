// The AdamW update on the card: kernels/adamw_rule.h, element by element, at the speed of the
// card's memory.
//
//   thread t of the grid takes the quads t, t + threads, ...   quad: 4 neighbouring elements
//   hi, lo, bf16 gradient                                      8-byte loads and stores
//   m, v, fp32 weight, fp32 gradient                           16-byte loads and stores
//   a tail of fewer than 4 elements                            one element each, by the first
//   threads
//
// A warp's loads of one array are 256 or 512 neighbouring bytes; per parameter 24 bytes and the
// gradient are moved, and about 20 operations done, so memory is the limit by far. An element's
// result depends on it alone: neither the grid nor the tail can change a bit.
#include <cuda_runtime_api.h>

#include "kernels/adamw_rule.h"
#include "kernels/cuda/module.h"

namespace headrace::kernels {

namespace {

constexpr uint32_t threads_per_block = 256;
constexpr uint64_t blocks_max = 4096;  // some tens per multiprocessor; the rest is the loop's
constexpr uint64_t quad = 4;

// Four neighbours, moved by one instruction.
struct alignas(16) Quad32 {
    float at[quad];
};
struct alignas(8) Quad16 {
    uint16_t at[quad];
};

template <bool split_weight, bool bf16_gradient>
__device__ void update_quad(const UpdateFactors& factors, const UpdateOperands& o, uint64_t first) {
    float gradient[quad];
    if constexpr (bf16_gradient) {
        const Quad16 narrow = *reinterpret_cast<const Quad16*>(o.gradient_bf16 + first);
        for (uint64_t i = 0; i < quad; ++i) gradient[i] = adamw_rule::bf16_value(narrow.at[i]);
    } else {
        const Quad32 wide = *reinterpret_cast<const Quad32*>(o.gradient_fp32 + first);
        for (uint64_t i = 0; i < quad; ++i) gradient[i] = wide.at[i];
    }
    auto* m_at = reinterpret_cast<Quad32*>(o.m + first);
    auto* v_at = reinterpret_cast<Quad32*>(o.v + first);
    Quad32 m = *m_at;
    Quad32 v = *v_at;
    if constexpr (split_weight) {
        auto* hi_at = reinterpret_cast<Quad16*>(o.hi + first);
        auto* lo_at = reinterpret_cast<Quad16*>(o.lo + first);
        Quad16 hi = *hi_at;
        Quad16 lo = *lo_at;
        for (uint64_t i = 0; i < quad; ++i) {
            const float w = adamw_rule::join(hi.at[i], lo.at[i]);
            const float updated = adamw_rule::update(factors, w, gradient[i], m.at[i], v.at[i]);
            adamw_rule::split(updated, hi.at[i], lo.at[i]);
        }
        *hi_at = hi;
        *lo_at = lo;
    } else {
        auto* weight_at = reinterpret_cast<Quad32*>(o.weight + first);
        Quad32 w = *weight_at;
        for (uint64_t i = 0; i < quad; ++i) {
            w.at[i] = adamw_rule::update(factors, w.at[i], gradient[i], m.at[i], v.at[i]);
        }
        *weight_at = w;
    }
    *m_at = m;
    *v_at = v;
}

template <bool split_weight, bool bf16_gradient>
__device__ void update_one(const UpdateFactors& factors, const UpdateOperands& o, uint64_t i) {
    const float gradient =
        bf16_gradient ? adamw_rule::bf16_value(o.gradient_bf16[i]) : o.gradient_fp32[i];
    if constexpr (split_weight) {
        const float w = adamw_rule::join(o.hi[i], o.lo[i]);
        adamw_rule::split(adamw_rule::update(factors, w, gradient, o.m[i], o.v[i]), o.hi[i],
                          o.lo[i]);
    } else {
        o.weight[i] = adamw_rule::update(factors, o.weight[i], gradient, o.m[i], o.v[i]);
    }
}

template <bool split_weight, bool bf16_gradient>
__global__ void __launch_bounds__(threads_per_block)
    update_all(const UpdateFactors factors, const UpdateOperands operands) {
    const uint64_t thread = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const uint64_t thread_count = uint64_t{gridDim.x} * blockDim.x;
    const uint64_t quad_count = operands.element_count / quad;
    for (uint64_t i = thread; i < quad_count; i += thread_count) {
        update_quad<split_weight, bf16_gradient>(factors, operands, i * quad);
    }
    const uint64_t tail = quad_count * quad + thread;
    if (tail < operands.element_count) {
        update_one<split_weight, bf16_gradient>(factors, operands, tail);
    }
}

template <bool split_weight, bool bf16_gradient>
void launch(const UpdateFactors& factors, const UpdateOperands& operands, cudaStream_t stream) {
    const uint64_t quad_count = operands.element_count / quad + 1;  // the tail counts as one
    const uint64_t wanted = (quad_count + threads_per_block - 1) / threads_per_block;
    const auto block_count = static_cast<uint32_t>(wanted < blocks_max ? wanted : blocks_max);
    update_all<split_weight, bf16_gradient>
        <<<block_count, threads_per_block, 0, stream>>>(factors, operands);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int headrace_cuda_update(
    const UpdateFactors* factors, const UpdateOperands* operands, void* stream) {
    if (operands->element_count == 0) return cudaSuccess;
    auto* on = static_cast<cudaStream_t>(stream);
    const bool is_split = operands->hi != nullptr;
    const bool is_narrow = operands->gradient_bf16 != nullptr;
    if (is_split && is_narrow) launch<true, true>(*factors, *operands, on);
    if (is_split && !is_narrow) launch<true, false>(*factors, *operands, on);
    if (!is_split && is_narrow) launch<false, true>(*factors, *operands, on);
    if (!is_split && !is_narrow) launch<false, false>(*factors, *operands, on);
    return cudaGetLastError();
}

}  // namespace headrace::kernels
