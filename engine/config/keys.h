// The keys of a run file: one table that the parser, the resolved config, `init` and `--help` all
// read, so that they cannot disagree. A Key says where its value lives in RunConfig and what it may
// be; set_value and text_of_value are the only two functions that know the kinds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/config/yaml_value.h"

namespace headrace::engine {

template <typename T>
using FieldOf = T& (*)(RunConfig&);

// Far above any use, and low enough that products of two counts cannot overflow.
inline constexpr int64_t count_max = 1'000'000'000;

struct SwitchField {
    FieldOf<bool> of;
};
struct OptionalSwitchField {  // or `auto`
    FieldOf<std::optional<bool>> of;
};
struct TextField {
    FieldOf<std::string> of;
};
struct TextListField {  // a list, or one text
    FieldOf<std::vector<std::string>> of;
};
struct CountField {
    FieldOf<int64_t> of;
    int64_t min;
    int64_t max = count_max;
};
struct SeedField {
    FieldOf<uint64_t> of;
};
struct OptionalCountField {  // or `auto`
    FieldOf<std::optional<int64_t>> of;
    int64_t min;
    enum class Extra : uint8_t { none, all, minus_one } extra = Extra::none;  // also allowed
    int64_t max = count_max;
};
struct RealField {
    FieldOf<double> of;
    double min;
    double max;
    enum class Ends : uint8_t { closed, open_below, open_above } ends = Ends::closed;
};
struct OptionalShareField {  // 0 to 1, or `auto`
    FieldOf<std::optional<double>> of;
};
struct SizeField {  // a size, or a size per second, or `auto`
    FieldOf<std::optional<uint64_t>> of;
    uint64_t min_bytes;
    enum class Per : uint8_t { nothing, second } per = Per::nothing;
};
struct SharesField {  // a tier, shares, or `auto`
    FieldOf<std::optional<TierShares>> of;
};
struct TierField {  // a tier, or `auto`
    FieldOf<std::optional<offload::Tier>> of;
    std::span<const offload::Tier> allowed;
};
struct DtypeField {  // bf16, fp16 or fp32
    FieldOf<offload::Dtype> of;
};
struct ChoiceField {  // one of `names`; get and set count from the first
    std::span<const std::string_view> names;
    size_t (*get)(const RunConfig&);
    void (*set)(RunConfig&, size_t);
};

using Field = std::variant<SwitchField, OptionalSwitchField, TextField, TextListField, CountField,
                           SeedField, OptionalCountField, RealField, OptionalShareField, SizeField,
                           SharesField, TierField, DtypeField, ChoiceField>;

struct Key {
    std::string_view name;  // dotted: offload.advanced.part_bytes
    std::string_view help;  // one line, without a full stop
    Field field;
};

// In the order of the run file; a section's keys stand together.
std::span<const Key> all_keys();

// The key of that exact dotted name, or of that name within `offload` or `offload.advanced`.
const Key* find_key(std::string_view name);

// What a switch says: true, yes, on, and their opposites; nothing of any other value.
std::optional<bool> switch_in(const YamlValue& value);

// Empty: the value is set. Else what is wrong, as in "must be at least 1, but is '0'"; `config` is
// then unchanged.
std::string set_value(RunConfig& config, const Key& key, const YamlValue& value);

// The value as YAML on one line; set_value reads it back as the same value.
std::string text_of_value(const RunConfig& config, const Key& key);

}  // namespace headrace::engine
