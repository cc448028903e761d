#include "engine/rehearse/rounds.h"

#include <algorithm>
#include <numeric>

#include "offload/check.h"

namespace headrace::engine {

std::vector<size_t> order_of_round(uint64_t round, size_t count) {
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    if (round % 2 == 1) std::ranges::reverse(order);
    return order;
}

double median_of(std::vector<double> samples) {
    CHECK(!samples.empty());
    std::ranges::sort(samples);
    const size_t middle = samples.size() / 2;
    if (samples.size() % 2 == 1) return samples[middle];
    return (samples[middle - 1] + samples[middle]) / 2;
}

std::vector<double> ratios(const std::vector<double>& over, const std::vector<double>& under) {
    CHECK_EQ(over.size(), under.size());
    std::vector<double> each;
    for (size_t i = 0; i < over.size(); ++i) each.push_back(over[i] / under[i]);
    return each;
}

}  // namespace headrace::engine
