#include "offload/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace headrace::offload {

namespace {

struct Unit {
    std::string_view name;
    double bytes;
};

constexpr std::array<Unit, 14> units = {{{"", 1},
                                         {"b", 1},
                                         {"k", 1024.0},
                                         {"kib", 1024.0},
                                         {"m", 1048576.0},
                                         {"mib", 1048576.0},
                                         {"g", 1073741824.0},
                                         {"gib", 1073741824.0},
                                         {"t", 1099511627776.0},
                                         {"tib", 1099511627776.0},
                                         {"kb", 1e3},
                                         {"mb", 1e6},
                                         {"gb", 1e9},
                                         {"tb", 1e12}}};

Error bad_size(std::string_view text, std::string_view why) {
    return Error{
        ErrorCode::usage,
        fmt::format("cannot read '{}' as a size: {}; write for example 4GiB or 768MiB", text, why),
        ""};
}

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
    double number = 0;
    const char* begin = text.data();
    const char* end = begin + text.size();
    const auto [rest, failure] = std::from_chars(begin, end, number);
    if (failure != std::errc{}) return bad_size(text, "it does not begin with a number");
    if (!(number >= 0)) return bad_size(text, "it is negative");
    std::string unit;
    for (const char* c = rest; c != end; ++c) {
        if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    for (const Unit& known : units) {
        if (known.name != unit) continue;
        const double size_bytes = number * known.bytes;
        if (!(size_bytes < 9.2e18)) return bad_size(text, "it is too large");
        return static_cast<uint64_t>(std::llround(size_bytes));
    }
    return bad_size(text, fmt::format("'{}' is no unit", unit));
}

std::string format_bytes(uint64_t size_bytes) {
    if (size_bytes < kib) return fmt::format("{} B", size_bytes);
    const std::array<std::string_view, 4> names = {"KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(size_bytes) / 1024;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < names.size()) {
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, names[unit]);
}

}  // namespace headrace::offload
