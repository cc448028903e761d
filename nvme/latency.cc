#include "nvme/latency.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "offload/check.h"

namespace headrace::nvme {

namespace {

constexpr uint64_t shortest_log2 = std::bit_width(LatencyHistogram::shortest_ns) - 1;
constexpr uint64_t fraction_bits = std::bit_width(LatencyHistogram::buckets_per_octave) - 1;
static_assert(std::has_single_bit(LatencyHistogram::shortest_ns));
static_assert(std::has_single_bit(LatencyHistogram::buckets_per_octave));
static_assert(shortest_log2 >= fraction_bits);

}  // namespace

size_t LatencyHistogram::bucket_of(uint64_t latency_ns) {
    if (latency_ns < shortest_ns) return 0;
    const uint64_t log2 = std::bit_width(latency_ns) - 1;
    const uint64_t fraction = (latency_ns >> (log2 - fraction_bits)) - buckets_per_octave;
    const uint64_t bucket = (log2 - shortest_log2) * buckets_per_octave + fraction;
    return std::min<uint64_t>(bucket, bucket_count - 1);
}

uint64_t LatencyHistogram::end_of_bucket_ns(size_t bucket) {
    CHECK_LT(bucket, bucket_count);
    const uint64_t octave = bucket / buckets_per_octave;
    const uint64_t fraction = bucket % buckets_per_octave + 1;
    return (shortest_ns << octave) + ((shortest_ns * fraction / buckets_per_octave) << octave);
}

void LatencyHistogram::add(uint64_t latency_ns) {
    counts_[bucket_of(latency_ns)]++;
    count_++;
    sum_ns_ += latency_ns;
    max_ns_ = std::max(max_ns_, latency_ns);
}

double LatencyHistogram::mean_ns() const {
    if (count_ == 0) return 0;
    return static_cast<double>(sum_ns_) / static_cast<double>(count_);
}

uint64_t LatencyHistogram::percentile_ns(double percent) const {
    CHECK_GT(percent, 0);
    CHECK_LE(percent, 100);
    if (count_ == 0) return 0;
    const auto rank = static_cast<uint64_t>(std::ceil(percent / 100 * static_cast<double>(count_)));
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket + 1 < bucket_count; bucket++) {
        seen += counts_[bucket];
        if (seen >= rank) return std::min(end_of_bucket_ns(bucket), max_ns_);
    }
    return max_ns_;
}

LatencyHistogram LatencyHistogram::operator-(const LatencyHistogram& before) const {
    CHECK_GE(count_, before.count_);
    CHECK_GE(sum_ns_, before.sum_ns_);
    LatencyHistogram since;
    for (size_t bucket = 0; bucket < bucket_count; bucket++) {
        CHECK_GE(counts_[bucket], before.counts_[bucket]);
        since.counts_[bucket] = counts_[bucket] - before.counts_[bucket];
        if (since.counts_[bucket] == 0) continue;
        const bool is_last = bucket + 1 == bucket_count;
        since.max_ns_ = is_last ? max_ns_ : std::min(max_ns_, end_of_bucket_ns(bucket));
    }
    since.count_ = count_ - before.count_;
    since.sum_ns_ = sum_ns_ - before.sum_ns_;
    return since;
}

LatencyHistogram& LatencyHistogram::operator+=(const LatencyHistogram& other) {
    for (size_t bucket = 0; bucket < bucket_count; bucket++) {
        counts_[bucket] += other.counts_[bucket];
    }
    count_ += other.count_;
    sum_ns_ += other.sum_ns_;
    max_ns_ = std::max(max_ns_, other.max_ns_);
    return *this;
}

}  // namespace headrace::nvme
