#include "nvme/path_statistics.h"

#include <fmt/core.h>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

namespace {

constexpr double ns_per_ms = 1e6;

uint64_t since(uint64_t now, uint64_t before) {
    CHECK_GE(now, before);
    return now - before;
}

std::string describe(const LatencyHistogram& latency) {
    const auto ms = [&latency](double percent) {
        return static_cast<double>(latency.percentile_ns(percent)) / ns_per_ms;
    };
    return fmt::format("p50 {:.2f}, p90 {:.2f}, p99 {:.2f}, max {:.2f} ms", ms(50), ms(90), ms(99),
                       static_cast<double>(latency.max_ns()) / ns_per_ms);
}

}  // namespace

double PathStatistics::depth_mean() const {
    return busy_ns == 0 ? 0 : static_cast<double>(depth_ns) / static_cast<double>(busy_ns);
}

PathStatistics PathStatistics::operator-(const PathStatistics& before) const {
    CHECK_GE(depth_max, before.depth_max);
    return {.read_bytes = since(read_bytes, before.read_bytes),
            .write_bytes = since(write_bytes, before.write_bytes),
            .request_count = since(request_count, before.request_count),
            .failed_count = since(failed_count, before.failed_count),
            .read_latency = read_latency - before.read_latency,
            .write_latency = write_latency - before.write_latency,
            .sync_latency = sync_latency - before.sync_latency,
            .busy_ns = since(busy_ns, before.busy_ns),
            .depth_ns = since(depth_ns, before.depth_ns),
            .depth_max = depth_max,
            .stall_count = since(stall_count, before.stall_count),
            .stall_ns = since(stall_ns, before.stall_ns),
            .limited_ns = since(limited_ns, before.limited_ns)};
}

std::string describe(const PathStatistics& statistics) {
    std::string text = fmt::format(
        "read {} in {} requests ({}), wrote {} in {} ({}), depth mean {:.1f} max {}",
        offload::format_bytes(statistics.read_bytes), statistics.read_latency.count(),
        describe(statistics.read_latency), offload::format_bytes(statistics.write_bytes),
        statistics.write_latency.count(), describe(statistics.write_latency),
        statistics.depth_mean(), statistics.depth_max);
    text += fmt::format(", {} stalls of {:.0f} ms", statistics.stall_count,
                        static_cast<double>(statistics.stall_ns) / ns_per_ms);
    if (statistics.limited_ns > 0) {
        text += fmt::format(", {:.0f} ms held by the write limit",
                            static_cast<double>(statistics.limited_ns) / ns_per_ms);
    }
    text += fmt::format(", {} syncs ({})", statistics.sync_latency.count(),
                        describe(statistics.sync_latency));
    if (statistics.failed_count > 0) text += fmt::format(", {} failed", statistics.failed_count);
    return text;
}

}  // namespace headrace::nvme
