#include "kernels/cuda_module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "kernels/cuda/module.h"

namespace headrace::kernels {

using offload::Error;
using offload::ErrorCode;

namespace {

// What the module exports under this name.
offload::Result<void*> find_export(const std::string& module_path, const char* name) {
    CHECK(!module_path.empty());
    if (access(module_path.c_str(), R_OK) != 0) {
        return Error{ErrorCode::failed,
                     "there is no CUDA module at " + module_path +
                         ": this build had no CUDA toolkit; install one and build again, or use "
                         "device: host",
                     ""};
    }
    // Never closed: the libraries below it register things that outlive a dlclose.
    void* module = dlopen(module_path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (module == nullptr) {
        const char* reason = dlerror();
        return Error{ErrorCode::failed,
                     "loading the CUDA module " + module_path +
                         " failed: a library that it was linked with has moved; build again, or "
                         "use device: host",
                     reason == nullptr ? "" : reason};
    }
    void* found = dlsym(module, name);
    if (found == nullptr) {
        return Error{ErrorCode::failed,
                     module_path +
                         " is not a CUDA module of this Headrace: remove it and build "
                         "again",
                     ""};
    }
    return found;
}

}  // namespace

std::string cuda_module_path() {
    std::error_code ignored;  // without /proc the name alone is looked for in the usual places
    const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    return (program.parent_path() / "libheadrace_cuda.so").string();
}

offload::Result<std::string> describe_cuda(const std::string& module_path) {
    const auto found = find_export(module_path, "headrace_cuda_describe");
    if (!found) return found.error();
    const auto describe = reinterpret_cast<decltype(&headrace_cuda_describe)>(*found);
    std::array<char, 512> text{};
    const int device_count = describe(text.data(), text.size());
    CHECK_GE(device_count, 0);
    CHECK(text[0] != '\0');
    return std::string(text.data());
}

offload::Result<CudaUpdate> find_cuda_update(const std::string& module_path) {
    const auto found = find_export(module_path, "headrace_cuda_update");
    if (!found) return found.error();
    return CudaUpdate{.start = reinterpret_cast<decltype(&headrace_cuda_update)>(*found)};
}

}  // namespace headrace::kernels
