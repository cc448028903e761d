#include "offload/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

#include "offload/check.h"

namespace headrace::offload {

namespace {

constexpr int mantissa_bits = 52;  // stored; a normal double has one more, implied
constexpr uint64_t mantissa_mask = (uint64_t{1} << mantissa_bits) - 1;

}  // namespace

void ExactSum::add_at(int word, uint64_t addend) {
    while (addend != 0) {
        CHECK_LT(word, word_count);
        words_[word] += addend;
        addend = words_[word] < addend ? 1 : 0;  // the carry
        ++word;
    }
}

void ExactSum::add(double term) {
    CHECK(std::isfinite(term));
    CHECK(term >= 0);
    const uint64_t bits = std::bit_cast<uint64_t>(term) & ~(uint64_t{1} << 63);  // -0 is 0
    const int exponent = static_cast<int>(bits >> mantissa_bits);
    const bool is_normal = exponent > 0;
    const uint64_t mantissa =
        (bits & mantissa_mask) | (is_normal ? uint64_t{1} << mantissa_bits : 0);
    const int shift = is_normal ? exponent - 1 : 0;
    const int within_word = shift % 64;
    add_at(shift / 64, mantissa << within_word);
    if (within_word != 0) add_at(shift / 64 + 1, mantissa >> (64 - within_word));
}

void ExactSum::merge(const ExactSum& other) {
    const ExactSum terms = other;  // it may be this one
    for (int word = 0; word < word_count; ++word) add_at(word, terms.words_[word]);
}

bool ExactSum::bit(int position) const {
    return (words_[position / 64] >> (position % 64) & 1) != 0;
}

double ExactSum::to_double() const {
    int top = 64 * word_count - 1;
    while (top >= 0 && !bit(top)) --top;
    if (top <= mantissa_bits) return std::ldexp(static_cast<double>(words_[0]), -1074);

    // The 53 bits from `top` down, then the half bit and whatever is below it.
    const int lowest = top - mantissa_bits;
    uint64_t mantissa = 0;
    for (int position = top; position >= lowest; --position) {
        mantissa = mantissa << 1 | (bit(position) ? 1 : 0);
    }
    const int half = lowest - 1;
    if (half >= 0 && bit(half)) {
        bool above_half = (words_[half / 64] & ((uint64_t{1} << (half % 64)) - 1)) != 0;
        for (int word = 0; word < half / 64; ++word) above_half |= words_[word] != 0;
        if (above_half || (mantissa & 1) != 0) ++mantissa;
    }
    CHECK_GE(mantissa, uint64_t{1} << mantissa_bits);
    CHECK_LE(mantissa, uint64_t{1} << (mantissa_bits + 1));
    // Exact (mantissa has 53 bits or is 2^53), or infinity beyond the largest double.
    return std::ldexp(static_cast<double>(mantissa), lowest - 1074);
}

}  // namespace headrace::offload
