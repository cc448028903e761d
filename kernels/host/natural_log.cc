#include "kernels/host/natural_log.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace headrace::kernels {

namespace {

// ln 2 in two parts: a product of the upper one, which ends in 21 zero bits, with an exponent is
// exact.
constexpr double ln2_upper = 0x1.62E42FEE00000p-1;
constexpr double ln2_lower = 0x1.A39EF35793C76p-33;

constexpr uint64_t fraction_mask = (uint64_t{1} << 52) - 1;
constexpr uint64_t sqrt_2_fraction = 0x6A09E667F3BCD;

}  // namespace

// x = 2^n m with m in (sqrt(1/2), sqrt 2]; ln m = 2 atanh(s) = 2 s + 2 s^3 / 3 + 2 s^5 / 5 + ...
// for s = (m - 1) / (m + 1), |s| < 0.172: the term after s^21 is below 2^-59 of the first.
double natural_log(double x) {
    using Limits = std::numeric_limits<double>;
    if (!(x > 0)) return x == 0 ? -Limits::infinity() : Limits::quiet_NaN();
    if (x == Limits::infinity()) return x;
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    const uint64_t fraction = bits & fraction_mask;
    const bool is_upper = fraction > sqrt_2_fraction;
    const auto n = static_cast<double>(static_cast<int64_t>(bits >> 52) - (is_upper ? 1022 : 1023));
    const double m = std::bit_cast<double>(fraction | (is_upper ? uint64_t{1022} : 1023) << 52);
    const double f = m - 1.0;  // exact
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    // 2 s = f - s f, so that f, which is exact, carries most of the result.
    const double rest = s * (f - 2.0 * (z * p));  // ln m = f - rest
    return n * ln2_upper + (f - (rest - n * ln2_lower));
}

}  // namespace headrace::kernels
