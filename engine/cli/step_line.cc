#include "engine/cli/step_line.h"

#include <fmt/format.h>

#include <utility>

#include "offload/check.h"

namespace headrace::engine {

namespace {

// Nobody shall take the times and losses of a card that is not there for those of a real one.
std::string marked(const std::string& emulated, std::string line) {
    return emulated.empty() ? line : fmt::format("EMULATED {}: {}", emulated, line);
}

}  // namespace

std::string step_line(const StepRecord& record, int64_t full_micro_batch_count) {
    CHECK_GE(record.step, 1);
    CHECK_LE(record.micro_batch_count, full_micro_batch_count);
    std::string line = fmt::format(
        "step={}/{} loss={:.4f} grad_norm={:.3f} lr={:.2e} tok/s={:.0f} time_ms={:.0f} "
        "nvme_gb_per_s={:.2f}",
        record.step, record.step_count, record.loss, record.grad_norm, record.learning_rate,
        record.tokens_per_s(), record.time_ms, record.nvme_gb_per_s());
    if (record.micro_batch_count < full_micro_batch_count) {
        line += fmt::format(" micro_batches={}", record.micro_batch_count);
    }
    if (record.masked_micro_batch_count > 0) {
        line += fmt::format(" masked_micro_batches={}", record.masked_micro_batch_count);
    }
    if (record.is_skipped) line += " skipped";
    return marked(record.emulated, std::move(line));
}

std::string eval_line(const EvalRecord& record) {
    CHECK_GE(record.step, 0);
    return marked(
        record.emulated,
        fmt::format("eval step={} loss={:.4f} trained_tokens={} time_ms={:.0f}", record.step,
                    record.loss, record.trained_token_count, record.time_ms));
}

}  // namespace headrace::engine
