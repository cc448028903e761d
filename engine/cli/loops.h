// Loops that run beside each other, each in a thread of its own, and how fast each of them is then:
// how benches find what work on the same memory and cores costs.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace headrace::engine {

// Does a little work, some milliseconds of it, and returns how much: bytes, parameters, operations.
using Loop = std::function<double()>;

// Per loop, in order: work per second while all of them run, which is until every one has run once
// and `seconds_min` have passed. One loop runs on the caller's thread. CHECKs that there is one.
std::vector<double> rates_beside(std::span<const Loop> loops, double seconds_min);

// The same of one alone.
double rate_alone(const Loop& loop, double seconds_min);

// Of as much work at the one rate as at the other; 0 where one of them is.
double rate_of_both(double one, double other);

}  // namespace headrace::engine
