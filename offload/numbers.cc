#include "offload/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "offload/check.h"

namespace headrace::offload {

namespace {

// "1234567.8" -> "1,234,567.8".
std::string in_threes(std::string text) {
    const size_t begin = text.starts_with('-') ? 1 : 0;
    const size_t end = std::min(text.find('.'), text.size());
    for (size_t at = end; at > begin + 3; at -= 3) text.insert(at - 3, ",");
    return text;
}

}  // namespace

std::string format_number(double value) {
    CHECK(std::isfinite(value));
    const double size = std::abs(value);
    if (size < 1e-12) return "0";
    // Of the number as it will be rounded: 9.996 is 10.0, not 10.00.
    const double digits = std::floor(std::log10(size * (1 + 5e-4)));
    const int decimals = std::max(0, 2 - static_cast<int>(digits));
    return in_threes(fmt::format("{:.{}f}", value, decimals));
}

std::string format_count(uint64_t count) {
    return in_threes(std::to_string(count));
}

std::string format_parameters(uint64_t parameter_count) {
    const auto parameters = static_cast<double>(parameter_count);
    if (parameter_count < 1'000'000) return format_count(parameter_count);
    // 999.6 million are a billion.
    return parameters < 999.5e6 ? format_number(parameters / 1e6) + " million"
                                : format_number(parameters / 1e9) + " billion";
}

std::string format_seconds(double seconds) {
    CHECK_GE(seconds, 0.0);
    if (seconds >= 0.1 || seconds == 0) return format_number(seconds) + " s";
    return seconds >= 1e-4 ? format_number(1e3 * seconds) + " ms"
                           : format_number(1e6 * seconds) + " us";
}

std::string format_duration(double seconds) {
    if (seconds < 120) return format_seconds(seconds);
    return seconds < 7200 ? format_number(seconds / 60) + " minutes"
                          : format_number(seconds / 3600) + " hours";
}

}  // namespace headrace::offload
