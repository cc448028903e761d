#include "engine/config/yaml_value.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "offload/check.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

// Turns yaml-cpp's nodes into YamlValues. Recursion is bounded by yaml_depth_max.
class Converter {
  public:
    std::vector<std::string> faults;
    bool is_too_large = false;

    YamlValue convert(const YAML::Node& node, int depth) {
        CHECK_LE(depth, yaml_depth_max + 1);
        YamlValue value;
        value.line = node.Mark().line + 1;
        if (depth > yaml_depth_max || ++value_count_ > yaml_value_count_max) {
            is_too_large = true;
            return value;
        }
        if (node.IsScalar()) {
            value.kind = YamlValue::Kind::scalar;
            value.text = node.Scalar();
        } else if (node.IsSequence()) {
            value.kind = YamlValue::Kind::list;
            for (const YAML::Node& item : node) value.items.push_back(convert(item, depth + 1));
        } else if (node.IsMap()) {
            value.kind = YamlValue::Kind::map;
            for (const auto& entry : node) add_entry(value, entry.first, entry.second, depth);
        }
        CHECK(value.kind != YamlValue::Kind::map || value.keys.size() == value.items.size());
        return value;
    }

  private:
    void add_entry(YamlValue& map, const YAML::Node& key, const YAML::Node& item, int depth) {
        const int line = key.Mark().line + 1;
        if (!key.IsScalar()) {
            faults.push_back(fmt::format("line {}: a key must be a word", line));
            return;
        }
        const auto first = std::ranges::find(map.keys, key.Scalar());
        if (first != map.keys.end()) {
            const int first_line = map.items[first - map.keys.begin()].line;
            faults.push_back(fmt::format("line {}: key '{}' is given twice (first in line {})",
                                         line, key.Scalar(), first_line));
            return;
        }
        map.keys.push_back(key.Scalar());
        map.items.push_back(convert(item, depth + 1));
        map.items.back().line = line;
    }

    int value_count_ = 0;
};

Error not_yaml(const std::string& source, std::string cause) {
    return Error{ErrorCode::usage, fmt::format("cannot read {} as YAML", source), std::move(cause)};
}

}  // namespace

std::string YamlValue::description() const {
    switch (kind) {
        case Kind::null: return "empty";
        case Kind::scalar: return fmt::format("'{}'", text);
        case Kind::list: return "a list";
        case Kind::map: return "a section with keys of its own";
    }
    CHECK(false);
}

Result<ParsedYaml> parse_yaml(const std::string& text, const std::string& source) {
    std::vector<YAML::Node> documents;
    Converter converter;
    ParsedYaml parsed;
    try {
        documents = YAML::LoadAll(text);
        if (documents.size() > 1) {
            return not_yaml(source, "it holds more than one document; remove the lines '---'");
        }
        if (!documents.empty()) parsed.root = converter.convert(documents.front(), 0);
    } catch (const YAML::Exception& fault) {
        return not_yaml(source, fmt::format("line {}, column {}: {}", fault.mark.line + 1,
                                            fault.mark.column + 1, fault.msg));
    }
    if (converter.is_too_large) {
        return not_yaml(source, fmt::format("nested deeper than {} levels or more than {} values",
                                            yaml_depth_max, yaml_value_count_max));
    }
    parsed.faults = std::move(converter.faults);
    return parsed;
}

std::string yaml_quoted(const std::string& text) {
    const auto is_plain = [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("_./-+%").find(char(c)) != std::string_view::npos;
    };
    // A leading '-' or '%' or '.' alone could mean something else to YAML.
    if (!text.empty() && std::ranges::all_of(text, is_plain) && text[0] != '-' && text[0] != '%') {
        return text;
    }
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            quoted += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        } else {
            quoted += c;
        }
    }
    return quoted + '"';
}

}  // namespace headrace::engine
