#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/models/json.h"
#include "engine/rehearse/rehearse.h"
#include "offload/numbers.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::format_bytes;
using offload::LaneKind;

namespace {

using Json = nlohmann::ordered_json;

// What the lane will be busy for in a step of the whole.
double whole_busy_s(const Rehearsal& rehearsal, size_t lane) {
    const double predicted_s = rehearsal.part.forecast.busy_s[lane];
    if (predicted_s <= 0) return 0;
    const double busy_s =
        rehearsal.lane_times[lane].busy_s * rehearsal.whole.forecast.busy_s[lane] / predicted_s;
    return std::min(busy_s, rehearsal.whole_step_s());
}

std::string row(std::string_view name, double predicted_s, double measured_s, double whole_s) {
    return fmt::format("  {:<18} {:>10.3f} {:>10.3f} {:>12.2f} {:>12.3f}", name, predicted_s,
                       measured_s, predicted_s > 0 ? measured_s / predicted_s : 0, whole_s);
}

}  // namespace

std::vector<std::string> describe(const Rehearsal& rehearsal) {
    std::vector<std::string> lines;
    const std::string mark =
        rehearsal.emulated.empty() ? "" : "EMULATED " + rehearsal.emulated + ": ";
    lines.push_back(fmt::format(
        "{}rehearsal of {} of {} blocks, {} steps of {} tokens; seconds of the median step", mark,
        rehearsal.block_count, rehearsal.whole_block_count, rehearsal.steps_s.size(),
        rehearsal.token_count));
    lines.push_back(fmt::format("  {:<18} {:>10} {:>10} {:>12} {:>12}", "", "predicted", "measured",
                                "of predicted", "whole model"));
    lines.push_back(
        row("step", rehearsal.part.forecast.step_s, rehearsal.step_s, rehearsal.whole_step_s()));
    for (size_t lane = 0; lane < rehearsal.lane_times.size(); ++lane) {
        const double measured_s = rehearsal.lane_times[lane].busy_s;
        if (measured_s == 0) continue;
        lines.push_back(row(fmt::format("{} busy", name_of(static_cast<LaneKind>(lane))),
                            rehearsal.part.forecast.busy_s[lane], measured_s,
                            whole_busy_s(rehearsal, lane)));
    }
    const RehearsedStep& whole = rehearsal.whole;
    lines.push_back(fmt::format("{}the whole model: {} a step, {} tokens/s", mark,
                                offload::format_seconds(rehearsal.whole_step_s()),
                                offload::format_number(static_cast<double>(rehearsal.token_count) /
                                                       rehearsal.whole_step_s())));
    lines.push_back(
        fmt::format("  a step reads {} and writes {}; slots take gpu {}, ram {}, nvme {}",
                    format_bytes(whole.read_bytes), format_bytes(whole.written_bytes),
                    format_bytes(whole.needs.gpu_bytes), format_bytes(whole.needs.ram_bytes),
                    format_bytes(whole.needs.nvme_bytes)));
    return lines;
}

std::string json_of(const Rehearsal& rehearsal) {
    const auto step_json = [](const RehearsedStep& step) {
        return Json{{"predicted_step_s", step.forecast.step_s},
                    {"read_bytes", step.read_bytes},
                    {"written_bytes", step.written_bytes},
                    {"updated_parameters", step.updated_parameter_count},
                    {"gpu_bytes", step.needs.gpu_bytes},
                    {"ram_bytes", step.needs.ram_bytes},
                    {"nvme_bytes", step.needs.nvme_bytes}};
    };
    Json lanes = Json::object();
    for (size_t lane = 0; lane < rehearsal.lane_times.size(); ++lane) {
        lanes[std::string(name_of(static_cast<LaneKind>(lane)))] = {
            {"predicted_busy_s", rehearsal.part.forecast.busy_s[lane]},
            {"predicted_alone_s", rehearsal.part.forecast.alone_s[lane]},
            {"busy_s", rehearsal.lane_times[lane].busy_s},
            {"whole_busy_s", whole_busy_s(rehearsal, lane)}};
    }
    const Json json = {
        {"emulated", rehearsal.emulated.empty() ? Json(nullptr) : Json(rehearsal.emulated)},
        {"blocks", rehearsal.block_count},
        {"whole_blocks", rehearsal.whole_block_count},
        {"tokens", rehearsal.token_count},
        {"step_s", rehearsal.step_s},
        {"steps_s", rehearsal.steps_s},
        {"whole_step_s", rehearsal.whole_step_s()},
        {"peak_rss_bytes", rehearsal.peak_rss_bytes},
        {"part", step_json(rehearsal.part)},
        {"whole", step_json(rehearsal.whole)},
        {"lanes", lanes}};
    // A card may be named after its file, and so by any bytes.
    return json_text(json, 2) + "\n";
}

}  // namespace headrace::engine
