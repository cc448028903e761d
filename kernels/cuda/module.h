// What libheadrace_cuda.so exports: plain C, because it is found by name at run time.
#pragma once

#include <cstddef>

#include "kernels/adamw.h"

namespace headrace::kernels {

extern "C" {

// Writes one line, zero-terminated and cut to target_bytes (at least 1): the CUDA runtime, the
// torch that was linked, and the first device or why there is none. Returns the number of devices.
// Needs no driver. Any thread.
int headrace_cuda_describe(char* target, size_t target_bytes);

// Starts the update of kernels/adamw.h on `stream` (a cudaStream_t; null: the default one) of the
// current device, in whose memory the operands lie; they keep find_fault. Returns at once: 0, or
// the cudaError_t that kept it from starting, such as that there is no device. Any thread.
int headrace_cuda_update(const UpdateFactors* factors, const UpdateOperands* operands,
                         void* stream);

}  // extern "C"

}  // namespace headrace::kernels
