#include "engine/models/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "offload/check.h"

namespace headrace::engine {

using nlohmann::json;
using offload::Error;
using offload::ErrorCode;
using offload::Result;

Result<json> parse_json(std::string_view text, const std::string& source) {
    CHECK(!source.empty());
    std::vector<std::set<std::string>> open_objects;  // the keys seen in each
    std::string fault;                                // the first one
    auto watch = [&](int depth, json::parse_event_t event, json& value) {
        CHECK_GE(depth, 0);
        switch (event) {
            case json::parse_event_t::object_start: open_objects.emplace_back(); break;
            case json::parse_event_t::object_end:
                CHECK(!open_objects.empty());
                open_objects.pop_back();
                break;
            case json::parse_event_t::key: {
                CHECK(!open_objects.empty());
                const std::string& key = value.get_ref<const std::string&>();
                const bool is_new = open_objects.back().insert(key).second;
                if (!is_new && fault.empty()) {
                    fault = fmt::format("the key {} stands twice in one object", shown(value));
                }
                break;
            }
            default: break;
        }
        const bool is_too_deep = depth > json_depth_max;
        if (is_too_deep && fault.empty()) {
            fault = fmt::format("it is nested deeper than {}", json_depth_max);
        }
        return !is_too_deep;  // what is too deep is read but not kept
    };
    json value = json::parse(text.begin(), text.end(), watch, false);
    if (value.is_discarded()) {
        fault = fmt::format("its {} bytes are not valid JSON", text.size());
    }
    if (!fault.empty()) {
        return Error{ErrorCode::bad_data,
                     fmt::format("reading {}: {}; the file is damaged or was edited wrongly, copy "
                                 "it again from where the model came from",
                                 source, fault),
                     ""};
    }
    return value;
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
    return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string shown(const json& value) {
    constexpr size_t shown_bytes_max = 120;
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (text.size() > shown_bytes_max) text = text.substr(0, shown_bytes_max) + "...";
    return text;
}

}  // namespace headrace::engine
