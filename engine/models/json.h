// JSON as model files hold it (config.json, shard indexes, safetensors headers), read strictly: a
// key that stands twice is refused, because readers differ in which one they believe; so is nesting
// that no such file needs, because everything downstream may recurse.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "offload/result.h"

namespace headrace::engine {

inline constexpr int json_depth_max = 32;

// The whole of `text` as one value. `source` names the file in errors.
// Error (bad_data): not JSON, a key twice (named), deeper than json_depth_max.
offload::Result<nlohmann::json> parse_json(std::string_view text, const std::string& source);

// A value as programs read it: its keys in their order, in one line or, by `indent`, in several. A
// text may hold a path or a name from a file, and so any bytes: those that are no UTF-8 become
// U+FFFD. Numbers that are not finite become null.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// A value as an error shows it, at most 120 bytes of it.
std::string shown(const nlohmann::json& value);

}  // namespace headrace::engine
