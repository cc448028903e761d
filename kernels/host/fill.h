// Filling a slot: zeros before accumulation, and NaN after release, so that a test sees every read
// of a value that is no longer there.
#pragma once

#include <cstddef>
#include <span>

namespace headrace::kernels {

void fill_zero(std::span<std::byte> target);

// Bytes of 0xFF: a NaN as fp32, bf16 and fp16 alike, and -1 as an integer.
void fill_nan(std::span<std::byte> target);

}  // namespace headrace::kernels
