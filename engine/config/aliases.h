// What people bring from other trainers: other names of our keys, settings that are always so here,
// and settings that this version does not have. One table each, tested as a whole.
#pragma once

#include <span>
#include <string_view>

namespace headrace::engine {

// Another name of a key.
struct Alias {
    std::string_view name;
    std::string_view key;  // dotted, as in keys.h
};
std::span<const Alias> all_aliases();

// A switch that stands for a value of a key: `bf16: true` is `dtype: bf16`; false says nothing.
struct SwitchAlias {
    std::string_view name;
    std::string_view key;
    std::string_view value;
};
std::span<const SwitchAlias> all_switch_aliases();

// A setting known from elsewhere that is no key here, or a section of such (`name` alone, or a name
// within it). Where its value is one of `accepted` (texts
// split by '|'; "*": any) it changes nothing, and `note` is said once (empty: not worth a line).
// Any other value is refused with `refusal`.
struct ForeignSetting {
    std::string_view name;
    std::string_view accepted;
    std::string_view note;
    std::string_view refusal;
};
std::span<const ForeignSetting> all_foreign_settings();
bool accepts(const ForeignSetting& setting, std::string_view value);

}  // namespace headrace::engine
