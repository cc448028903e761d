// Which kernels compute what torch's matrix products do not: Headrace's own fused ones, or their
// twins made of ATen calls, which are the oracle of the former. The two differ in the last bits.
#pragma once

#include <cstdint>

namespace headrace::engine {

enum class Kernels : uint8_t { fused, reference };

}  // namespace headrace::engine
