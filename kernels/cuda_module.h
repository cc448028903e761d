// Asking the CUDA half, where it was built, what it is and what it sees. It is a library of its own
// (kernels/cuda), loaded when first asked for and kept until the process ends: a run on the host
// neither loads nor needs any CUDA library.
#pragma once

#include <string>

#include "kernels/adamw.h"
#include "offload/result.h"

namespace headrace::kernels {

// libheadrace_cuda.so beside the running program.
std::string cuda_module_path();

// One line: CUDA runtime, torch, and the first device or why there is none. Any thread; the first
// call takes about a second. Error (failed): the library is missing, because this build had no CUDA
// toolkit, or cannot be loaded.
offload::Result<std::string> describe_cuda(const std::string& module_path);

// The update on the card (headrace_cuda_update of kernels/cuda/module.h), valid until the process
// ends. Errors as above; that there is no device is said when it is called.
struct CudaUpdate {
    int (*start)(const UpdateFactors* factors, const UpdateOperands* operands, void* stream);
};
offload::Result<CudaUpdate> find_cuda_update(const std::string& module_path);

}  // namespace headrace::kernels
