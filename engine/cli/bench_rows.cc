#include "engine/cli/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/models/json.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(double value) {
    return value > 0 ? Json(value) : Json(nullptr);
}

const BenchFact* find_fact(const BenchRow& row, const std::string& name) {
    for (const auto& [fact, value] : row.facts) {
        if (fact == name) return &value;
    }
    return nullptr;
}

std::string text_of(const BenchFact* fact, const BenchColumn& column) {
    if (fact == nullptr) return "";
    if (const auto* text = std::get_if<std::string>(fact)) return *text;
    if (const auto* number = std::get_if<double>(fact)) {
        return fmt::format("{:.{}f}", *number, column.decimals);
    }
    if (const auto* is_so = std::get_if<bool>(fact)) return *is_so ? "yes" : "no";
    const auto count = std::get<uint64_t>(*fact);
    return column.fact.ends_with("_bytes") ? offload::format_bytes(count) : std::to_string(count);
}

}  // namespace

std::string json_of(const std::vector<BenchRow>& rows) {
    Json list = Json::array();
    for (const BenchRow& row : rows) {
        Json entry = {{"name", row.name},
                      {"unit", row.unit},
                      {"achieved", row.achieved},
                      {"ceiling", number_or_null(row.ceiling)},
                      {"ratio", number_or_null(row.ratio())},
                      {"against", row.against.empty() ? Json(nullptr) : Json(row.against)},
                      {"rounds", row.samples.size()},
                      {"samples", row.samples}};
        for (const auto& [name, value] : row.facts) {
            CHECK(!entry.contains(name));
            std::visit([&entry, &key = name](const auto& fact) { entry[key] = fact; }, value);
        }
        list.push_back(std::move(entry));
    }
    // A path may hold any byte; JSON may not.
    return json_text(list, 2) + "\n";
}

std::string table_of(const std::vector<BenchRow>& rows, const std::vector<BenchColumn>& columns) {
    CHECK(!rows.empty());
    std::vector<std::vector<std::string>> lines = {
        {"", rows[0].unit, "of", "ratio"}};  // the name, achieved, ceiling, their ratio
    for (const BenchColumn& column : columns) lines[0].push_back(column.title);
    for (const BenchRow& row : rows) {
        CHECK_EQ(row.unit, rows[0].unit);
        const bool has_ceiling = row.ceiling > 0;
        lines.push_back({row.name, fmt::format("{:.2f}", row.achieved),
                         has_ceiling ? fmt::format("{:.2f}", row.ceiling) : "",
                         has_ceiling ? fmt::format("{:.2f}", row.ratio()) : ""});
        for (const BenchColumn& column : columns) {
            lines.back().push_back(text_of(find_fact(row, column.fact), column));
        }
    }
    std::vector<size_t> widths(lines[0].size(), 0);
    for (const auto& line : lines) {
        for (size_t i = 0; i < line.size(); i++) widths[i] = std::max(widths[i], line[i].size());
    }
    std::string text;
    for (const auto& line : lines) {
        std::string shown = fmt::format("  {:<{}}", line[0], widths[0]);
        for (size_t i = 1; i < line.size(); i++) {
            shown += fmt::format("  {:>{}}", line[i], widths[i]);
        }
        text += shown.substr(0, shown.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

offload::Error stopped_bench() {
    return {offload::ErrorCode::stopped, "stopped; nothing is left of what it measured", ""};
}

}  // namespace headrace::engine
