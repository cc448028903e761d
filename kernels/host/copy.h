// The host device's h2d and d2h lanes: its gpu tier is memory too, so both are a copy.
#pragma once

#include <cstddef>
#include <span>

namespace headrace::kernels {

// Copies all of source to target, which has the same size and does not overlap it (CHECK). Blocks;
// any thread.
void copy_bytes(std::span<std::byte> target, std::span<const std::byte> source);

}  // namespace headrace::kernels
