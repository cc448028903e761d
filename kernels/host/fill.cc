#include "kernels/host/fill.h"

#include <cstring>

namespace headrace::kernels {

void fill_zero(std::span<std::byte> target) {
    if (!target.empty()) std::memset(target.data(), 0, target.size());
}

void fill_nan(std::span<std::byte> target) {
    if (!target.empty()) std::memset(target.data(), 0xFF, target.size());
}

}  // namespace headrace::kernels
