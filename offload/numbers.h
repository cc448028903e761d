// Numbers as people read them: beside format_bytes (offload/units.h), the one way that seconds,
// rates, counts and ratios are written in lines and tables. None has ever an exponent.
#pragma once

#include <cstdint>
#include <string>

namespace headrace::offload {

// Three digits that count, and all of those before the point, in threes: "0.0114", "5.27", "62.0",
// "93,412". What is below 1e-12 is 0. CHECKs that it is finite.
std::string format_number(double value);

// A count, exactly: "1,000", "32,768".
std::string format_count(uint64_t count);

// How many parameters, at a glance: "13.0 billion", "135 million", "93,248".
std::string format_parameters(uint64_t parameter_count);

// "62.2 s", "1,130 s"; below a tenth of a second "15.4 ms", "57.2 us". CHECKs that it is not
// negative.
std::string format_seconds(double seconds);

// What may take days: "48.0 s", "12.5 minutes", "17.3 hours".
std::string format_duration(double seconds);

}  // namespace headrace::offload
