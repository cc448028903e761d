// YamlValue: a YAML document as a plain tree of text with line numbers, the only form in which the
// rest of the engine sees YAML. Scalars stay text: whoever wants a number parses it and can say
// what is wrong with it. The first thing YAML libraries forgive, a key given twice, is a fault
// here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/result.h"

namespace headrace::engine {

struct YamlValue {
    enum class Kind : uint8_t { null, scalar, list, map };

    Kind kind = Kind::null;
    std::string text;               // scalar
    std::vector<std::string> keys;  // map: the name of each item
    std::vector<YamlValue> items;   // list and map
    int line = 0;                   // 1 is the first; for a map's item, the line of its key

    bool is(std::string_view word) const { return kind == Kind::scalar && text == word; }
    // "a list", "the text 'abc'": for "must be ..., but is ...".
    std::string description() const;
};

struct ParsedYaml {
    YamlValue root;
    std::vector<std::string> faults;  // "line 7: key 'seed' is given twice (first in line 3)"
};

// Error (usage): text that is no YAML, more than one document, nested deeper than yaml_depth_max or
// with more than yaml_value_count_max values (aliases counted as often as they are used).
inline constexpr int yaml_depth_max = 8;
inline constexpr int yaml_value_count_max = 10'000;
offload::Result<ParsedYaml> parse_yaml(const std::string& text, const std::string& source);

// `text` as a YAML scalar: as it stands where that reads back as the same text, else quoted.
std::string yaml_quoted(const std::string& text);

}  // namespace headrace::engine
