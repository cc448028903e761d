#include "nvme/drive.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "nvme/placement.h"
#include "offload/check.h"

namespace headrace::nvme {

namespace {

constexpr double fallen_share = 2.0 / 3;
constexpr double equal_within = 1.10;
constexpr double mismatch_max = 0.02;

double median(std::vector<double> values) {
    CHECK(!values.empty());
    std::ranges::sort(values);
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double rate_of(const WriteSample& sample) {
    CHECK_GT(sample.seconds, 0.0);
    return static_cast<double>(sample.size_bytes) / sample.seconds;
}

double median_rate(std::span<const WriteSample> writes) {
    std::vector<double> rates;
    for (const WriteSample& sample : writes) rates.push_back(rate_of(sample));
    return median(std::move(rates));
}

// All bytes by all time: what a long run gets.
double mean_rate(std::span<const WriteSample> writes) {
    CHECK(!writes.empty());
    double bytes = 0;
    double seconds = 0;
    for (const WriteSample& sample : writes) {
        bytes += static_cast<double>(sample.size_bytes);
        seconds += sample.seconds;
    }
    return bytes / seconds;
}

// Rates within equal_within of the least of their group become the group's mean.
std::vector<double> snapped(const std::vector<double>& rates) {
    std::vector<size_t> order(rates.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&rates](size_t a, size_t b) { return rates[a] < rates[b]; });
    std::vector<double> result(rates.size());
    for (size_t first = 0; first < order.size();) {
        size_t end = first;
        double sum = 0;
        while (end < order.size() && rates[order[end]] <= rates[order[first]] * equal_within) {
            sum += rates[order[end++]];
        }
        for (size_t i = first; i < end; i++) {
            result[order[i]] = sum / static_cast<double>(end - first);
        }
        first = end;
    }
    return result;
}

// Weights of about `slot_count` in sum; empty if they do not stay within pattern_slots_max.
std::vector<uint32_t> rounded_weights(const std::vector<double>& rates, uint32_t slot_count) {
    const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
    std::vector<uint32_t> weights;
    uint64_t total = 0;
    for (const double rate : rates) {
        const double exact = rate / sum * slot_count;
        weights.push_back(static_cast<uint32_t>(std::max(1L, std::lround(exact))));
        total += weights.back();
    }
    if (total > pattern_slots_max) return {};
    return weights;
}

}  // namespace

double step_bytes_per_s(double read_bytes_per_s, double write_bytes_per_s) {
    CHECK_GT(read_bytes_per_s, 0.0);
    CHECK_GT(write_bytes_per_s, 0.0);
    const double reads = step_read_bytes_per_parameter;
    const double writes = step_write_bytes_per_parameter;
    return (reads + writes) / (reads / read_bytes_per_s + writes / write_bytes_per_s);
}

double step_bytes_per_s(const Drive& drive) {
    return step_bytes_per_s(drive.read_bytes_per_s, drive.write_sustained_bytes_per_s);
}

std::optional<size_t> find_fall(std::span<const WriteSample> writes) {
    if (writes.size() < 2 * fall_window) return std::nullopt;
    for (size_t begin = fall_window; begin + fall_window <= writes.size(); begin++) {
        const double before = median_rate(writes.first(begin));
        const double limit = before * fallen_share;
        if (rate_of(writes[begin]) >= limit) continue;
        if (median_rate(writes.subspan(begin, fall_window)) >= limit) continue;
        if (median_rate(writes.subspan(begin)) < limit) return begin;
    }
    return std::nullopt;
}

Drive fold(const DriveSamples& samples) {
    CHECK(!samples.writes.empty());
    const std::span<const WriteSample> writes = samples.writes;
    Drive drive;
    if (!samples.read_bytes_per_s.empty())
        drive.read_bytes_per_s = median(samples.read_bytes_per_s);
    if (!samples.mixed_bytes_per_s.empty()) {
        drive.mixed_bytes_per_s = median(samples.mixed_bytes_per_s);
    }
    if (const std::optional<size_t> fall = find_fall(writes)) {
        CHECK_GE(*fall, fall_window);
        CHECK_LT(*fall + 1, writes.size());
        drive.has_fallen = true;
        drive.burst_bytes = writes[*fall].written_before_bytes;
        drive.write_burst_bytes_per_s = mean_rate(writes.first(*fall));
        drive.write_sustained_bytes_per_s = mean_rate(writes.subspan(*fall + 1));
        return drive;
    }
    drive.burst_bytes = writes.back().written_before_bytes + writes.back().size_bytes;
    drive.write_burst_bytes_per_s = mean_rate(writes);
    drive.write_sustained_bytes_per_s = drive.write_burst_bytes_per_s;
    return drive;
}

double mismatch(std::span<const uint32_t> weights, std::span<const double> rates) {
    CHECK_EQ(weights.size(), rates.size());
    CHECK(!weights.empty());
    double least = rates[0] / weights[0];
    double most = least;
    for (size_t path = 1; path < weights.size(); path++) {
        CHECK_GE(weights[path], 1u);
        const double per_weight = rates[path] / weights[path];
        least = std::min(least, per_weight);
        most = std::max(most, per_weight);
    }
    return most / least - 1;
}

std::vector<uint32_t> weights_of_rates(std::vector<double> rates) {
    CHECK(!rates.empty());
    CHECK_LE(rates.size(), path_count_max);
    for (const double rate : rates) CHECK_GT(rate, 0.0);
    rates = snapped(rates);
    std::vector<uint32_t> best(rates.size(), 1);
    for (auto slots = static_cast<uint32_t>(rates.size()); slots <= pattern_slots_max; slots++) {
        if (mismatch(best, rates) < mismatch_max) break;
        const std::vector<uint32_t> weights = rounded_weights(rates, slots);
        if (!weights.empty() && mismatch(weights, rates) < mismatch(best, rates)) best = weights;
    }
    CHECK_LE(std::accumulate(best.begin(), best.end(), uint64_t{0}), pattern_slots_max);
    return best;
}

std::vector<uint32_t> weights_of(const std::vector<Drive>& drives) {
    std::vector<double> rates;
    for (const Drive& drive : drives) rates.push_back(step_bytes_per_s(drive));
    return weights_of_rates(std::move(rates));
}

}  // namespace headrace::nvme
