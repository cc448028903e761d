#include "kernels/host/isa.h"

#include "offload/check.h"

namespace headrace::kernels {

bool has(Isa isa) {
    switch (isa) {
        case Isa::baseline: return true;
        case Isa::avx2_fma_f16c:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("f16c");
        case Isa::avx512f: return __builtin_cpu_supports("avx512f");
        case Isa::avx512f_bf16:
            // GCC takes avx512bf16 for a promise of avx512bw.
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512bf16");
    }
    CHECK(false);
    return false;
}

}  // namespace headrace::kernels
