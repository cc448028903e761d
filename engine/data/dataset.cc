#include "engine/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "offload/check.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

using Json = nlohmann::json;

// What one line holds, before it is cut.
struct Line {
    std::vector<int32_t> input_ids;
    std::vector<int32_t> labels;
};

// A fault of a line, without the place; empty where there is none.
using Fault = std::string;

struct Range {
    int64_t min;
    int64_t max;
};

// Reads the list `object[key]`, whose numbers must lie in `range` or be not_trained (labels).
Fault read_list(const Json& object, const char* key, const Range& range,
                std::vector<int32_t>& target) {
    const Json& list = object[key];
    if (!list.is_array()) return fmt::format("'{}' is {}, not a list", key, list.type_name());
    target.reserve(list.size());
    for (const Json& item : list) {
        if (!item.is_number_integer()) {
            return fmt::format("'{}' holds {}, not a whole number, at position {}", key,
                               item.is_number() ? item.dump() : item.type_name(), target.size());
        }
        // An unsigned number beyond int64 would wrap: it is outside any vocabulary.
        const bool is_huge = item.is_number_unsigned() &&
                             item.get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()};
        const int64_t number = is_huge ? std::numeric_limits<int32_t>::max() : item.get<int64_t>();
        const bool is_masked = number == not_trained && std::strcmp(key, "labels") == 0;
        if (!is_masked && (is_huge || number < range.min || number > range.max)) {
            return fmt::format(
                "'{}' holds {} at position {}, outside {} to {}; was the file made "
                "with another model's tokenizer?",
                key, item.dump(), target.size(), range.min, range.max);
        }
        target.push_back(static_cast<int32_t>(number));
    }
    return {};
}

// Drops tokens at the end whose attention_mask is 0.
Fault apply_mask(const std::vector<int32_t>& mask, Line& line) {
    if (mask.size() != line.input_ids.size()) {
        return fmt::format("'attention_mask' has {} items and 'input_ids' {}", mask.size(),
                           line.input_ids.size());
    }
    const auto first_off = std::ranges::find(mask, 0);
    if (std::find(first_off, mask.end(), 1) != mask.end()) {
        return fmt::format(
            "'attention_mask' hides position {}, and a later one is seen; only "
            "tokens at the end can be hidden: remove the hidden ones",
            first_off - mask.begin());
    }
    line.input_ids.resize(first_off - mask.begin());
    line.labels.resize(first_off - mask.begin());
    return {};
}

Fault read_line(const std::string& text, int64_t vocabulary_size, Line& line) {
    const Json object = Json::parse(text, nullptr, false);
    if (object.is_discarded()) return "this is no JSON; is the line cut off?";
    if (!object.is_object()) return fmt::format("this is {}, not an object", object.type_name());
    if (!object.contains("input_ids")) return "'input_ids' is missing";
    const Range tokens{.min = 0, .max = vocabulary_size - 1};
    Fault fault = read_list(object, "input_ids", tokens, line.input_ids);
    if (!fault.empty()) return fault;
    line.labels = line.input_ids;
    if (object.contains("labels") && !object["labels"].is_null()) {
        line.labels.clear();
        fault = read_list(object, "labels", tokens, line.labels);
        if (!fault.empty()) return fault;
    }
    if (line.labels.size() != line.input_ids.size()) {
        return fmt::format("'labels' has {} items and 'input_ids' {}; they must be as long",
                           line.labels.size(), line.input_ids.size());
    }
    if (object.contains("attention_mask") && !object["attention_mask"].is_null()) {
        std::vector<int32_t> mask;
        fault = read_list(object, "attention_mask", {.min = 0, .max = 1}, mask);
        if (fault.empty()) fault = apply_mask(mask, line);
        if (!fault.empty()) return fault;
    }
    CHECK_EQ(line.labels.size(), line.input_ids.size());
    if (count_trained(line.labels) == 0) {
        return "this sample has nothing to train: every label but the first is -100; remove the "
               "line, or give it labels";
    }
    return {};
}

bool is_blank(const std::string& text) {
    return text.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

int64_t count_trained(std::span<const int32_t> labels) {
    if (labels.empty()) return 0;
    const auto trained = labels.subspan(1);
    return static_cast<int64_t>(trained.size()) - std::ranges::count(trained, not_trained);
}

Result<Dataset> Dataset::read(const DatasetOptions& options) {
    CHECK_GE(options.vocabulary_size, 1);
    CHECK_LE(options.vocabulary_size, int64_t{std::numeric_limits<int32_t>::max()});
    CHECK_GE(options.max_length, 2);
    std::ifstream file(options.path, std::ios::binary);
    if (!file) {
        return Error{ErrorCode::bad_data,
                     fmt::format("cannot open the data file '{}'", options.path),
                     std::strerror(errno)};
    }
    Dataset dataset;
    std::string text;
    int64_t line_number = 0;
    while (std::getline(file, text)) {
        ++line_number;
        if (is_blank(text)) continue;
        const Status status = dataset.append_line(text, options, line_number);
        if (!status) return status.error();
    }
    if (file.bad()) {
        return Error{ErrorCode::failed,
                     fmt::format("cannot read '{}' after line {}", options.path, line_number),
                     std::strerror(errno)};
    }
    if (dataset.sample_count() == 0 && dataset.dropped_lines_.empty()) {
        return Error{ErrorCode::bad_data, fmt::format("'{}' holds no sample", options.path),
                     "the file is empty"};
    }
    if (dataset.sample_count() == 0) {
        return Error{ErrorCode::bad_data,
                     fmt::format("'{}' holds no sample that keeps a trained token within {} tokens",
                                 options.path, options.max_length),
                     fmt::format("all {} samples are longer; raise max_length",
                                 dataset.dropped_lines_.size())};
    }
    CHECK_EQ(dataset.input_ids_.size(), dataset.labels_.size());
    CHECK_EQ(dataset.ends_.back(), dataset.input_ids_.size());
    return dataset;
}

Status Dataset::append_line(const std::string& text, const DatasetOptions& options,
                            int64_t line_number) {
    Line line;
    const Fault fault = read_line(text, options.vocabulary_size, line);
    if (!fault.empty()) {
        return Error{ErrorCode::bad_data,
                     fmt::format("{}:{}: {}", options.path, line_number, fault), ""};
    }
    if (static_cast<int64_t>(line.input_ids.size()) > options.max_length) {
        line.input_ids.resize(options.max_length);
        line.labels.resize(options.max_length);
        ++cut_sample_count_;
    }
    const int64_t trained = count_trained(line.labels);
    if (trained == 0) {
        dropped_lines_.push_back(line_number);
        return {};
    }
    const auto token_count = static_cast<int64_t>(line.input_ids.size());
    CHECK_GE(token_count, 2);
    input_ids_.insert(input_ids_.end(), line.input_ids.begin(), line.input_ids.end());
    labels_.insert(labels_.end(), line.labels.begin(), line.labels.end());
    ends_.push_back(input_ids_.size());
    trained_token_count_ += trained;
    longest_sample_tokens_ = std::max(longest_sample_tokens_, token_count);
    return {};
}

Sample Dataset::sample(int64_t index) const {
    CHECK(index >= 0 && index < sample_count());
    const uint64_t begin = index == 0 ? 0 : ends_[index - 1];
    const uint64_t token_count = ends_[index] - begin;
    CHECK_LE(begin + token_count, input_ids_.size());
    return {.input_ids = std::span(input_ids_).subspan(begin, token_count),
            .labels = std::span(labels_).subspan(begin, token_count)};
}

int64_t Dataset::token_count_of(int64_t index) const {
    return static_cast<int64_t>(sample(index).input_ids.size());
}

}  // namespace headrace::engine
