#include "engine/torch/torch.h"
// After torch.h, whose CHECK family is then gone.
#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include "engine/torch/llama.h"
#include "engine/torch/ops/matmul.h"
#include "engine/torch/scalar_type.h"
#include "engine/torch/threads.h"
#include "engine/torch/workspace.h"
#include "kernels/host/attention.h"

namespace headrace::engine {

void start_torch(int compute_thread_count) {
    CHECK_GE(compute_thread_count, 1);
    install_workspace_allocator();
    at::set_num_threads(compute_thread_count);
    if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    // The deterministic mode would also fill every fresh tensor with NaN.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
    CHECK_EQ(at::get_num_threads(), compute_thread_count);
}

void warm_up_torch(offload::Dtype dtype) {
    const at::Tensor square = at::ones({256, 256}, work_type(scalar_type_of(dtype)));
    const at::Tensor product = at::empty_like(square);
    multiply(square, square, product, square.view(-1));
    CHECK_EQ(product[0][0].item<float>(), 256.0f);
}

std::string matmul_description(offload::Dtype dtype) {
    const bool wide_vectors = __builtin_cpu_supports("avx512f");
    if (dtype == offload::Dtype::bf16 && matmul_path(dtype) == MatmulPath::native) {
        const bool has_tiles = __builtin_cpu_supports("amx-bf16");
        return std::string("bf16 onednn ") + (has_tiles ? "amx_bf16" : "avx512_bf16") +
               ", dx whole" +
               (kernels::has(kernels::bf16_attention_row().required_isa) ? ", attention scores bf16"
                                                                         : "");
    }
    return std::string("fp32 mkl ") + (wide_vectors ? "avx512" : "avx2") +
           (dtype == offload::Dtype::fp32 ? "" : ", rounded");
}

std::string torch_version() {
    return std::string("torch ") + TORCH_VERSION + " kernels " + at::get_cpu_capability();
}

}  // namespace headrace::engine
