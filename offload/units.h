// Sizes and exact integer arithmetic. Every quantity carries its unit in its name; a count becomes
// bytes only through bytes_of (offload/dtype.h), a division only through div_exact or div_ceil.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "offload/check.h"
#include "offload/result.h"

namespace headrace::offload {

inline constexpr uint64_t kib = 1024;
inline constexpr uint64_t mib = 1024 * kib;
inline constexpr uint64_t gib = 1024 * mib;

// The unit of every place, slot and I/O buffer: what O_DIRECT needs on every file system we know.
inline constexpr uint64_t page_bytes = 4096;

constexpr uint64_t div_ceil(uint64_t dividend, uint64_t divisor) {
    CHECK_GT(divisor, 0u);
    return dividend / divisor + (dividend % divisor != 0 ? 1 : 0);
}

constexpr uint64_t div_exact(uint64_t dividend, uint64_t divisor) {
    CHECK_GT(divisor, 0u);
    CHECK_EQ(dividend % divisor, 0u);
    return dividend / divisor;
}

// The smallest multiple of `alignment` that is >= value.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
    return div_ceil(value, alignment) * alignment;
}

// "4GiB", "768MiB", "2.5 GB", "4096" (bytes). KB, MB, GB, TB are powers of ten; KiB, MiB, GiB,
// TiB powers of two; a bare K, M, G, T means the power of two. Error: usage, naming the text.
Result<uint64_t> parse_bytes(std::string_view text);

// For people: "1.50 GiB", "12.0 MiB", "512 B".
std::string format_bytes(uint64_t size_bytes);

}  // namespace headrace::offload
