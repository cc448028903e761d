// Which kernels compute what torch's matrix products do not: Headrace's own fused ones, or their
// twins made of ATen calls, which are the oracle of the former. The two differ in the last bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace::engine {

enum class Kernels : uint8_t { fused, reference };

constexpr std::string_view name_of(Kernels kernels) {
    return kernels == Kernels::fused ? "fused" : "reference";
}

}  // namespace headrace::engine
