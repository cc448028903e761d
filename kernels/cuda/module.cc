#include "kernels/cuda/module.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "offload/check.h"

namespace headrace::kernels {

namespace {

// 13000 -> "13.0"
std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The first device, or why there is none; the count of devices through `device_count`.
std::string describe_device(int* device_count) {
    if (const cudaError_t reason = cudaGetDeviceCount(device_count); reason != cudaSuccess) {
        *device_count = 0;
        return std::string("no device: ") + cudaGetErrorString(reason);
    }
    if (*device_count == 0) return "no device";
    cudaDeviceProp properties{};
    if (const cudaError_t reason = cudaGetDeviceProperties(&properties, 0); reason != cudaSuccess) {
        return std::string("a device that does not answer: ") + cudaGetErrorString(reason);
    }
    return std::string(properties.name) + ", compute capability " +
           std::to_string(properties.major) + "." + std::to_string(properties.minor);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int headrace_cuda_describe(char* target,
                                                                             size_t target_bytes) {
    CHECK(target != nullptr);
    CHECK_GE(target_bytes, 1u);
    int runtime_version = 0;
    CHECK_EQ(static_cast<int>(cudaRuntimeGetVersion(&runtime_version)), 0);
    const bool torch_loaded = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
    int device_count = 0;
    const std::string device = describe_device(&device_count);
    const std::string text = "CUDA runtime " + version_text(runtime_version) + ", torch " +
                             HEADRACE_TORCH_VERSION + (torch_loaded ? "" : " (not loaded)") + ", " +
                             device;
    const size_t text_bytes = text.size() < target_bytes ? text.size() : target_bytes - 1;
    std::memcpy(target, text.data(), text_bytes);
    target[text_bytes] = '\0';
    return device_count;
}

}  // namespace headrace::kernels
