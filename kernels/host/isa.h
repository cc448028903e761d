// The instruction sets that the rows of the tables are compiled for.
#pragma once

#include <cstdint>

namespace headrace::kernels {

enum class Isa : uint8_t { baseline, avx2_fma_f16c, avx512f, avx512f_bf16 };

// This machine and its operating system have it.
bool has(Isa isa);

}  // namespace headrace::kernels
