#include "engine/train/drive_watch.h"

#include <fmt/format.h>

namespace headrace::engine {

using nvme::PathStatistics;

DriveWatch::DriveWatch(const nvme::NvmeStore& store)
    : store_(&store), seen_(store.path_count()), rates_(store.path_count()) {}

MovedBytes DriveWatch::look() {
    MovedBytes moved;
    for (size_t path = 0; path < seen_.size(); ++path) {
        const PathStatistics now = store_->statistics(path);
        moved.read += now.read_bytes - seen_[path].read_bytes;
        moved.written += now.write_bytes - seen_[path].write_bytes;
        seen_[path] = now;
    }
    written_.total_bytes += moved.written;
    return moved;
}

void DriveWatch::look_at_rest() {
    look();
    written_.at_rest_bytes = written_.total_bytes;
}

std::vector<std::string> DriveWatch::rate_changes() {
    std::vector<std::string> lines;
    for (size_t path = 0; path < seen_.size(); ++path) {
        const PathStatistics step = store_->statistics(path) - seen_[path];
        const auto change = rates_[path].add(step.read_bytes + step.write_bytes,
                                             static_cast<double>(step.busy_ns) * 1e-9);
        if (!change) continue;
        const bool is_slower = change->observed_bytes_per_s < change->started_bytes_per_s;
        lines.push_back(
            fmt::format("{} moves {:.2f} GB/s since some steps, and {:.2f} GB/s at the start: {}",
                        store_->path_name(path), change->observed_bytes_per_s * 1e-9,
                        change->started_bytes_per_s * 1e-9,
                        is_slower ? "its cache may be full, it may be hot, or somebody else uses it"
                                  : "somebody else may have used it then"));
    }
    return lines;
}

std::vector<Metric> DriveWatch::metrics() const {
    std::vector<Metric> metrics;
    for (size_t path = 0; path < seen_.size(); ++path) {
        const PathStatistics now = store_->statistics(path);
        const auto add = [&](const char* name, auto value) {
            metrics.push_back({fmt::format("nvme{}_{}", path, name), value});
        };
        const auto count = [](uint64_t value) { return static_cast<int64_t>(value); };
        const auto ms = [](uint64_t ns) { return static_cast<double>(ns) * 1e-6; };
        add("path", store_->path_name(path));
        add("read_bytes", count(now.read_bytes));
        add("write_bytes", count(now.write_bytes));
        add("requests", count(now.request_count));
        for (const auto& [name, latency] :
             {std::pair("read", &now.read_latency), std::pair("write", &now.write_latency),
              std::pair("sync", &now.sync_latency)}) {
            add(fmt::format("{}_p50_ms", name).c_str(), ms(latency->percentile_ns(50)));
            add(fmt::format("{}_p99_ms", name).c_str(), ms(latency->percentile_ns(99)));
            add(fmt::format("{}_max_ms", name).c_str(), ms(latency->max_ns()));
        }
        add("busy_ms", ms(now.busy_ns));
        add("depth_mean", now.depth_mean());
        add("stalls", count(now.stall_count));
        add("stall_ms", ms(now.stall_ns));
    }
    return metrics;
}

std::vector<std::string> DriveWatch::lines() const {
    std::vector<std::string> lines;
    for (size_t path = 0; path < seen_.size(); ++path) {
        lines.push_back(
            fmt::format("{}: {}", store_->path_name(path), describe(store_->statistics(path))));
    }
    return lines;
}

}  // namespace headrace::engine
