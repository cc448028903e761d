#include "engine/train/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/models/json.h"
#include "offload/check.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

using Json = nlohmann::ordered_json;

// Whether a line tells of a step, or of an evaluation, that a run resumed after step_count steps
// will not come to again. The evaluation after the last step is made again. A line that a crash
// cut short tells nothing.
bool is_before(const std::string& line, int64_t step_count) {
    const Json object = Json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) {
        return false;
    }
    const auto step = object["step"].get<int64_t>();
    return object.contains("eval_loss") ? step < step_count : step <= step_count;
}

}  // namespace

Result<MetricsFile> MetricsFile::create(const std::string& path) {
    CHECK(!path.empty());
    std::FILE* file = std::fopen(path.c_str(), "we");
    if (file == nullptr) {
        return Error{ErrorCode::failed, fmt::format("cannot write the metrics to '{}'", path),
                     std::strerror(errno)};
    }
    return MetricsFile(path, file);
}

Result<MetricsFile> MetricsFile::resume(const std::string& path, int64_t step_count) {
    CHECK_GE(step_count, 0);
    const std::string kept_path = path + ".resumed";
    {
        std::ifstream before(path);
        std::ofstream kept(kept_path, std::ios::trunc);
        for (std::string line; std::getline(before, line);) {
            if (is_before(line, step_count)) kept << line << '\n';
        }
        kept.flush();
        if (!kept) {
            return Error{ErrorCode::failed, fmt::format("cannot write '{}'", kept_path),
                         std::strerror(errno)};
        }
    }
    if (std::rename(kept_path.c_str(), path.c_str()) != 0) {
        return Error{ErrorCode::failed, fmt::format("cannot rename '{}' to '{}'", kept_path, path),
                     std::strerror(errno)};
    }
    std::FILE* file = std::fopen(path.c_str(), "ae");
    if (file == nullptr) {
        return Error{ErrorCode::failed, fmt::format("cannot write the metrics to '{}'", path),
                     std::strerror(errno)};
    }
    return MetricsFile(path, file);
}

Status MetricsFile::append(const StepRecord& record) {
    CHECK_GE(record.step, 1);
    CHECK_LE(record.step, record.step_count);
    Json line = {{"step", record.step},
                 {"total_steps", record.step_count},
                 {"epoch", record.epoch},
                 {"loss", record.loss},
                 {"grad_norm", record.grad_norm},
                 {"learning_rate", record.learning_rate},
                 {"tokens_per_s", record.tokens_per_s()},
                 {"time_ms", record.time_ms},
                 {"tokens", record.token_count},
                 {"trained_tokens", record.trained_token_count},
                 {"micro_batches", record.micro_batch_count},
                 {"masked_micro_batches", record.masked_micro_batch_count},
                 {"skipped", record.is_skipped},
                 {"warm_up", record.is_warm_up},
                 {"nvme_read_bytes", record.nvme_read_bytes},
                 {"nvme_write_bytes", record.nvme_write_bytes},
                 {"nvme_gb_per_s", record.nvme_gb_per_s()}};
    if (record.loss_scale) line["loss_scale"] = *record.loss_scale;
    if (!record.emulated.empty()) line["emulated"] = record.emulated;
    return write_line(json_text(line));
}

Status MetricsFile::append(const EvalRecord& record) {
    CHECK_GE(record.step, 0);
    Json line = {{"step", record.step},
                 {"eval_loss", record.loss},
                 {"eval_trained_tokens", record.trained_token_count},
                 {"eval_time_ms", record.time_ms}};
    if (!record.emulated.empty()) line["emulated"] = record.emulated;
    return write_line(json_text(line));
}

Status MetricsFile::append(std::span<const Metric> metrics) {
    Json object = Json::object();
    for (const Metric& metric : metrics) {
        CHECK(!metric.name.empty());
        CHECK(!object.contains(metric.name));
        std::visit([&](const auto& value) { object[metric.name] = value; }, metric.value);
    }
    return write_line(json_text(object));
}

Status MetricsFile::write_line(const std::string& line) {
    CHECK(line.find('\n') == std::string::npos);
    const bool is_written = std::fputs(line.c_str(), file_.get()) >= 0 &&
                            std::fputc('\n', file_.get()) != EOF && std::fflush(file_.get()) == 0;
    if (is_written) return {};
    return Error{ErrorCode::failed,
                 fmt::format("cannot write a line of {} bytes to '{}'", line.size(), path_),
                 std::strerror(errno)};
}

}  // namespace headrace::engine
