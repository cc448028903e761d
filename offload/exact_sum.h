// ExactSum: a sum of doubles without any rounding, so that it does not depend on the order or the
// grouping of its terms. This is how the gradient norm is independent of parts, threads and ranks:
// each block of 2048 elements has one sum of squares, and the blocks are added here.
//
// The sum is one long fixed-point number whose bit 0 weighs 2^-1074, the smallest double. The
// largest double ends at bit 2097; 34 words of 64 bits leave room for 2^78 terms of it.
//
//   add(x):  x = mantissa * 2^(shift - 1074); two words take the mantissa, a carry may run on.
//
// A value: 272 bytes, trivially copyable, so ranks may exchange its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace headrace::offload {

class ExactSum {
  public:
    // `term` is finite and not negative (CHECK).
    void add(double term);

    // Adds all terms of the other sum.
    void merge(const ExactSum& other);

    // Rounded once, to nearest, ties to even; infinity above the largest double.
    double to_double() const;

    bool operator==(const ExactSum&) const = default;

  private:
    static constexpr int word_count = 34;

    void add_at(int word, uint64_t addend);
    bool bit(int position) const;

    std::array<uint64_t, word_count> words_{};  // least significant first
};

static_assert(sizeof(ExactSum) == 272);
static_assert(std::is_trivially_copyable_v<ExactSum>);

}  // namespace headrace::offload
