// What libheadrace_cuda.so exports: plain C, because it is found by name at run time.
#pragma once

#include <cstddef>

namespace headrace::kernels {

extern "C" {

// Writes one line, zero-terminated and cut to target_bytes (at least 1): the CUDA runtime, the
// torch that was linked, and the first device or why there is none. Returns the number of devices.
// Needs no driver. Any thread.
int headrace_cuda_describe(char* target, size_t target_bytes);

}  // extern "C"

}  // namespace headrace::kernels
