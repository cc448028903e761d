// The AdamW update on the card: kernels/adamw_rule.h, element by element, at the speed of the
// card's memory.
//
//   thread t of the grid takes the quads t, t + threads, ...   quad: 4 neighbouring elements
//   hi, lo, bf16 gradient                                      8-byte loads and stores
//   bf16 m, v                                                  8-byte loads and stores
//   fp32 m, v, weight, gradient                                16-byte loads and stores
//   int8 m, v                                                  block by block, see below
//   a tail of fewer than 4 elements                            one element each, by the first
//   threads
//
// A warp's loads of one array are 256 or 512 neighbouring bytes; per parameter up to 24 bytes
// and the gradient are moved, and some tens of operations done, so memory is the limit by far. An
// element's result depends on it alone: neither the grid nor the tail can change a bit.
#include <cuda_runtime_api.h>

#include "kernels/adamw_rule.h"
#include "kernels/cuda/module.h"
#include "offload/check.h"

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

__device__ void load_quad(float* target, const float* source) {
    const Quad32 wide = *reinterpret_cast<const Quad32*>(source);
    for (uint64_t i = 0; i < quad; ++i) target[i] = wide.at[i];
}

__device__ void load_quad(float* target, const uint16_t* source) {
    const Quad16 narrow = *reinterpret_cast<const Quad16*>(source);
    for (uint64_t i = 0; i < quad; ++i) target[i] = adamw_rule::bf16_value(narrow.at[i]);
}

__device__ void store_quad(float* target, const float* source) {
    Quad32 wide;
    for (uint64_t i = 0; i < quad; ++i) wide.at[i] = source[i];
    *reinterpret_cast<Quad32*>(target) = wide;
}

// m and v of four elements, rounded at random.
__device__ void store_narrow(const UpdateOperands& o, uint64_t first, const float* m,
                             const float* v) {
    Quad16 m_narrow, v_narrow;
    for (uint64_t i = 0; i < quad; ++i) {
        const uint32_t random = adamw_rule::random_bits(o.rounding, o.first_element + first + i);
        m_narrow.at[i] = adamw_rule::to_bf16(m[i], random & 0xFFFFu);
        v_narrow.at[i] = adamw_rule::to_bf16(v[i], random >> 16);
    }
    *reinterpret_cast<Quad16*>(o.m_bf16 + first) = m_narrow;
    *reinterpret_cast<Quad16*>(o.v_bf16 + first) = v_narrow;
}

template <bool split_weight, bool bf16_gradient, bool bf16_moments>
__device__ void update_quad(const UpdateFactors& factors, const UpdateOperands& o, uint64_t first) {
    float gradient[quad], m[quad], v[quad], w[quad];
    bf16_gradient ? load_quad(gradient, o.gradient_bf16 + first)
                  : load_quad(gradient, o.gradient_fp32 + first);
    bf16_moments ? load_quad(m, o.m_bf16 + first) : load_quad(m, o.m + first);
    bf16_moments ? load_quad(v, o.v_bf16 + first) : load_quad(v, o.v + first);
    if constexpr (split_weight) {
        const Quad16 hi = *reinterpret_cast<const Quad16*>(o.hi + first);
        const Quad16 lo = *reinterpret_cast<const Quad16*>(o.lo + first);
        for (uint64_t i = 0; i < quad; ++i) w[i] = adamw_rule::join(hi.at[i], lo.at[i]);
    } else {
        load_quad(w, o.weight + first);
    }
    for (uint64_t i = 0; i < quad; ++i) {
        w[i] = adamw_rule::update(factors, w[i], gradient[i], m[i], v[i]);
    }
    if constexpr (split_weight) {
        Quad16 hi, lo;
        for (uint64_t i = 0; i < quad; ++i) adamw_rule::split(w[i], hi.at[i], lo.at[i]);
        *reinterpret_cast<Quad16*>(o.hi + first) = hi;
        *reinterpret_cast<Quad16*>(o.lo + first) = lo;
    } else {
        store_quad(o.weight + first, w);
    }
    if constexpr (bf16_moments) {
        store_narrow(o, first, m, v);
    } else {
        store_quad(o.m + first, m);
        store_quad(o.v + first, v);
    }
}

template <bool split_weight, bool bf16_gradient, bool bf16_moments>
__global__ void __launch_bounds__(threads_per_block)
    update_all(const UpdateFactors factors, const UpdateOperands operands) {
    const uint64_t thread = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const uint64_t thread_count = uint64_t{gridDim.x} * blockDim.x;
    const uint64_t quad_count = operands.element_count / quad;
    for (uint64_t i = thread; i < quad_count; i += thread_count) {
        update_quad<split_weight, bf16_gradient, bf16_moments>(factors, operands, i * quad);
    }
    const uint64_t tail = quad_count * quad + thread;
    if (tail < operands.element_count) adamw_rule::update_element(factors, operands, tail);
}

// int8: a thread takes whole blocks of 32, whose bytes lie together; a warp's lie together too.
__global__ void __launch_bounds__(threads_per_block)
    update_blocks(const UpdateFactors factors, const UpdateOperands operands) {
    constexpr uint64_t block = adamw_rule::int8_block;
    const uint64_t thread = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const uint64_t thread_count = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t first = thread * block; first < operands.element_count;
         first += thread_count * block) {
        const uint64_t left = operands.element_count - first;
        adamw_rule::update_block(factors, operands, first, left < block ? left : block);
    }
}

uint32_t block_count_of(uint64_t thread_count) {
    const uint64_t wanted = (thread_count + threads_per_block - 1) / threads_per_block;
    return static_cast<uint32_t>(wanted < blocks_max ? wanted : blocks_max);
}

template <bool split_weight, bool bf16_gradient, bool bf16_moments>
void launch(const UpdateFactors& factors, const UpdateOperands& operands, cudaStream_t stream) {
    const uint64_t quad_count = operands.element_count / quad + 1;  // the tail counts as one
    update_all<split_weight, bf16_gradient, bf16_moments>
        <<<block_count_of(quad_count), threads_per_block, 0, stream>>>(factors, operands);
}

template <bool split_weight, bool bf16_gradient>
void launch_with_moments(const UpdateFactors& factors, const UpdateOperands& operands,
                         cudaStream_t stream) {
    if (operands.m_bf16 != nullptr) {
        launch<split_weight, bf16_gradient, true>(factors, operands, stream);
    } else {
        launch<split_weight, bf16_gradient, false>(factors, operands, stream);
    }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int headrace_cuda_update(
    const UpdateFactors* factors, const UpdateOperands* operands, void* stream) {
    CHECK(factors != nullptr);
    CHECK(operands != nullptr);
    CHECK((operands->hi != nullptr) != (operands->weight != nullptr));
    CHECK((operands->gradient_bf16 != nullptr) != (operands->gradient_fp32 != nullptr));
    if (operands->element_count == 0) return cudaSuccess;
    auto* on = static_cast<cudaStream_t>(stream);
    if (operands->m_int8 != nullptr) {
        const uint64_t block_count = operands->element_count / adamw_rule::int8_block + 1;
        update_blocks<<<block_count_of(block_count), threads_per_block, 0, on>>>(*factors,
                                                                                 *operands);
        return cudaGetLastError();
    }
    const bool is_split = operands->hi != nullptr;
    const bool is_narrow = operands->gradient_bf16 != nullptr;
    if (is_split && is_narrow) launch_with_moments<true, true>(*factors, *operands, on);
    if (is_split && !is_narrow) launch_with_moments<true, false>(*factors, *operands, on);
    if (!is_split && is_narrow) launch_with_moments<false, true>(*factors, *operands, on);
    if (!is_split && !is_narrow) launch_with_moments<false, false>(*factors, *operands, on);
    return cudaGetLastError();
}

}  // namespace headrace::kernels
