// Rounds: several things measured in turns, every other round backwards, so that a slow minute of
// the machine hits all of them; and what their rounds say together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace::engine {

// The indices 0 to count - 1 in the order in which this round takes them.
std::vector<size_t> order_of_round(uint64_t round, size_t count);

// Of one or more (CHECK); between the two in the middle where their number is even.
double median_of(std::vector<double> samples);

// Round by round; as many of one as of the other (CHECK).
std::vector<double> ratios(const std::vector<double>& over, const std::vector<double>& under);

}  // namespace headrace::engine
