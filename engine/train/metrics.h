// metrics.jsonl: what a run measured, for programs. One JSON object per line, flushed per line, so
// the file is valid after each; a reader may follow it while the run goes on. The engine writes
// facts here and hands the same facts to whoever prints them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "offload/result.h"

namespace headrace::engine {

// One step, as logged. Losses and norms of a skipped step may be not finite: they become null.
struct StepRecord {
    int64_t step = 0;  // 1 is the first
    int64_t step_count = 0;
    double epoch = 0;
    double loss = 0;       // sum over trained tokens / trained tokens, the whole step
    double grad_norm = 0;  // before clipping
    double learning_rate = 0;
    double time_ms = 0;
    int64_t token_count = 0;  // without padding
    int64_t trained_token_count = 0;
    int64_t micro_batch_count = 0;
    int64_t masked_micro_batch_count = 0;
    uint64_t nvme_read_bytes = 0;
    uint64_t nvme_write_bytes = 0;
    bool is_skipped = false;             // no update: not finite, or nothing to train
    bool is_warm_up = false;             // unlike those that follow: tells nothing of their time
    std::optional<double> loss_scale{};  // of fp16 gradients; of this step
    std::string emulated{};              // the card that was pretended; empty: none

    double tokens_per_s() const { return time_ms > 0 ? 1e3 * double(token_count) / time_ms : 0; }
    // Both directions, in powers of ten.
    double nvme_gb_per_s() const {
        return time_ms > 0 ? 1e-6 * double(nvme_read_bytes + nvme_write_bytes) / time_ms : 0;
    }
};

struct EvalRecord {
    int64_t step = 0;  // after this many steps; 0: before the first
    double loss = 0;
    int64_t trained_token_count = 0;
    double time_ms = 0;
    std::string emulated{};  // as above
};

// A named fact of a record that has no struct of its own (memory, placement, hashes).
struct Metric {
    std::string name;  // unit last: peak_rss_bytes
    std::variant<int64_t, double, std::string> value;
};

class MetricsFile {
  public:
    // Begins a new file (an old one of the same name is replaced). Error: failed.
    static offload::Result<MetricsFile> create(const std::string& path);
    // Goes on with the file of a run that is resumed after `step_count` steps: what it says of
    // later ones is cut off, since they will be said again. A missing file is begun. Error: failed.
    static offload::Result<MetricsFile> resume(const std::string& path, int64_t step_count);

    // Each writes one line and flushes it. Error: failed (a full drive), with the path.
    offload::Status append(const StepRecord& record);
    offload::Status append(const EvalRecord& record);
    offload::Status append(std::span<const Metric> metrics);

  private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    explicit MetricsFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
    offload::Status write_line(const std::string& line);

    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace headrace::engine
