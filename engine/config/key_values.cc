// The two functions that know the kinds of fields (keys.h): text to value and back.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/config/keys.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Dtype;
using offload::Tier;

namespace {

// "": accepted. Every parser below gives this or a sentence that begins with "must".
using Fault = std::string;

Fault must_be(std::string_view wanted, const YamlValue& value) {
    return fmt::format("must be {}, but is {}", wanted, value.description());
}

template <typename Number>
std::optional<Number> number_in(const std::string& text) {
    Number number{};
    const char* end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, number);
    if (failure != std::errc{} || rest != end) return std::nullopt;
    return number;
}

struct CountRange {
    int64_t min;
    int64_t max;
};

std::optional<int64_t> count_in(const std::string& text, const CountRange& range) {
    CHECK_LE(range.min, range.max);
    const std::optional<int64_t> count = number_in<int64_t>(text);
    return count && *count >= range.min && *count <= range.max ? count : std::nullopt;
}

bool is_auto(const YamlValue& value) {
    return value.kind == YamlValue::Kind::null || value.is("auto");
}

Fault read(const SwitchField& field, const YamlValue& value, RunConfig& config) {
    if (value.kind == YamlValue::Kind::null) return {};  // said nothing
    const std::optional<bool> is_on = switch_in(value);
    if (!is_on) return must_be("true or false", value);
    field.of(config) = *is_on;
    return {};
}

Fault read(const OptionalSwitchField& field, const YamlValue& value, RunConfig& config) {
    const std::optional<bool> is_on = switch_in(value);
    if (!is_on && !is_auto(value)) return must_be("true, false or auto", value);
    field.of(config) = is_on;
    return {};
}

Fault read(const TextField& field, const YamlValue& value, RunConfig& config) {
    // An empty value is how a run file says "none".
    if (value.kind == YamlValue::Kind::null) {
        field.of(config).clear();
        return {};
    }
    if (value.kind != YamlValue::Kind::scalar) return must_be("one text", value);
    field.of(config) = value.text;
    return {};
}

Fault read(const TextListField& field, const YamlValue& value, RunConfig& config) {
    std::vector<std::string> texts;
    if (value.kind == YamlValue::Kind::scalar) texts.push_back(value.text);
    if (value.kind == YamlValue::Kind::map) return must_be("a list", value);
    for (const YamlValue& item : value.items) {
        if (item.kind != YamlValue::Kind::scalar) return must_be("a list of texts", item);
        texts.push_back(item.text);
    }
    for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].empty()) return "must not hold an empty text";
        if (std::find(texts.begin(), texts.begin() + i, texts[i]) != texts.begin() + i) {
            return fmt::format("must not name '{}' twice", texts[i]);
        }
    }
    field.of(config) = std::move(texts);
    return {};
}

Fault read(const CountField& field, const YamlValue& value, RunConfig& config) {
    const std::optional<int64_t> count = count_in(value.text, {.min = field.min, .max = field.max});
    if (!count) {
        return must_be(fmt::format("a whole number from {} to {}", field.min, field.max), value);
    }
    field.of(config) = *count;
    return {};
}

Fault read(const SeedField& field, const YamlValue& value, RunConfig& config) {
    const std::optional<uint64_t> seed = number_in<uint64_t>(value.text);
    if (!seed) return must_be("a whole number from 0 to 18446744073709551615", value);
    field.of(config) = *seed;
    return {};
}

Fault read(const OptionalCountField& field, const YamlValue& value, RunConfig& config) {
    using Extra = OptionalCountField::Extra;
    if (is_auto(value) || (field.extra == Extra::minus_one && value.is("-1"))) {
        field.of(config).reset();
        return {};
    }
    if (field.extra == Extra::all && value.is("all")) {
        field.of(config) = as_many_as_there_are;
        return {};
    }
    const std::optional<int64_t> count = count_in(value.text, {.min = field.min, .max = field.max});
    if (!count) {
        const std::string_view words = field.extra == Extra::all ? ", all or auto" : " or auto";
        return must_be(fmt::format("a whole number from {} to {}{}", field.min, field.max, words),
                       value);
    }
    field.of(config) = *count;
    return {};
}

Fault read(const RealField& field, const YamlValue& value, RunConfig& config) {
    using Ends = RealField::Ends;
    const std::optional<double> number = number_in<double>(value.text);
    const bool is_open_below = field.ends == Ends::open_below;
    const bool is_open_above = field.ends == Ends::open_above;
    const bool is_in = number && std::isfinite(*number) &&
                       (is_open_below ? *number > field.min : *number >= field.min) &&
                       (is_open_above ? *number < field.max : *number <= field.max);
    if (!is_in) {
        return must_be(
            fmt::format("a number {} {} and {} {}", is_open_below ? "above" : "of at least",
                        field.min, is_open_above ? "below" : "at most", field.max),
            value);
    }
    field.of(config) = *number;
    return {};
}

Fault read(const SizeField& field, const YamlValue& value, RunConfig& config) {
    if (is_auto(value)) {
        field.of(config).reset();
        return {};
    }
    if (value.kind != YamlValue::Kind::scalar)
        return must_be("a size such as 4GiB, or auto", value);
    const bool is_rate = field.per == SizeField::Per::second;
    std::string text = value.text;
    if (is_rate && text.ends_with("/s")) text.resize(text.size() - 2);
    const offload::Result<uint64_t> size_bytes = offload::parse_bytes(text);
    if (!size_bytes || *size_bytes < field.min_bytes) {
        return must_be(
            fmt::format("a {} of at least {}, such as {}, or auto", is_rate ? "rate" : "size",
                        offload::format_bytes(field.min_bytes), is_rate ? "2GB/s" : "4GiB"),
            value);
    }
    field.of(config) = *size_bytes;
    return {};
}

// "10%" or a fraction such as 0.1.
std::optional<double> share_in(const YamlValue& value) {
    std::string text = value.text;
    const bool is_percent = text.ends_with('%');
    if (is_percent) text.pop_back();
    const std::optional<double> number = number_in<double>(text);
    if (!number || !(*number >= 0)) return std::nullopt;
    const double share = is_percent ? *number / 100 : *number;
    return share <= 1 ? std::optional(share) : std::nullopt;
}

Fault read(const OptionalShareField& field, const YamlValue& value, RunConfig& config) {
    if (is_auto(value)) {
        field.of(config).reset();
        return {};
    }
    const std::optional<double> share = share_in(value);
    if (!share) return must_be("a share of at least 0 and at most 1, such as 0.5, or auto", value);
    field.of(config) = *share;
    return {};
}

constexpr std::string_view shares_wanted =
    "gpu, ram, nvme, auto, or shares such as {gpu: 10%, ram: 40%, nvme: 50%}";

Fault read(const SharesField& field, const YamlValue& value, RunConfig& config) {
    if (is_auto(value)) {
        field.of(config).reset();
        return {};
    }
    if (value.kind == YamlValue::Kind::scalar) {
        const offload::Result<Tier> tier = offload::parse_tier(value.text);
        if (!tier) return must_be(shares_wanted, value);
        field.of(config) = TierShares::all_on(*tier);
        return {};
    }
    if (value.kind != YamlValue::Kind::map) return must_be(shares_wanted, value);
    TierShares shares;
    double sum = 0;
    for (size_t i = 0; i < value.items.size(); ++i) {
        const offload::Result<Tier> tier = offload::parse_tier(value.keys[i]);
        if (!tier) return fmt::format("must name tiers gpu, ram and nvme, not '{}'", value.keys[i]);
        const std::optional<double> share = share_in(value.items[i]);
        if (!share) {
            return fmt::format("must give {} a share such as 40% or 0.4, but gives {}",
                               value.keys[i], value.items[i].description());
        }
        shares.share_of_tier[static_cast<size_t>(*tier)] += *share;
        sum += *share;
    }
    if (std::fabs(sum - 1) > 1e-9) {
        return fmt::format("must have shares that add up to 100%, but they add up to {:g}%",
                           sum * 100);
    }
    field.of(config) = shares;
    return {};
}

Fault read(const TierField& field, const YamlValue& value, RunConfig& config) {
    if (is_auto(value)) {
        field.of(config).reset();
        return {};
    }
    const offload::Result<Tier> tier = offload::parse_tier(value.text);
    if (!tier || std::ranges::find(field.allowed, *tier) == field.allowed.end()) {
        std::string names;
        for (const Tier allowed : field.allowed) names += fmt::format("{}, ", name_of(allowed));
        return must_be(names + "or auto", value);
    }
    field.of(config) = *tier;
    return {};
}

Fault read(const DtypeField& field, const YamlValue& value, RunConfig& config) {
    const offload::Result<Dtype> dtype = offload::parse_dtype(value.text);
    if (!dtype) return must_be("bf16, fp16 or fp32", value);
    field.of(config) = *dtype;
    return {};
}

Fault read(const ChoiceField& field, const YamlValue& value, RunConfig& config) {
    for (size_t i = 0; i < field.names.size(); ++i) {
        if (!value.is(field.names[i])) continue;
        field.set(config, i);
        CHECK_EQ(field.get(config), i);
        return {};
    }
    return must_be(fmt::format("one of {}", fmt::join(field.names, ", ")), value);
}

std::string write(const SwitchField& field, RunConfig& config) {
    return field.of(config) ? "true" : "false";
}
std::string write(const OptionalSwitchField& field, RunConfig& config) {
    const std::optional<bool> is_on = field.of(config);
    if (!is_on) return "auto";
    return *is_on ? "true" : "false";
}
std::string write(const TextField& field, RunConfig& config) {
    return yaml_quoted(field.of(config));
}
std::string write(const TextListField& field, RunConfig& config) {
    std::vector<std::string> texts;
    for (const std::string& text : field.of(config)) texts.push_back(yaml_quoted(text));
    return fmt::format("[{}]", fmt::join(texts, ", "));
}
std::string write(const CountField& field, RunConfig& config) {
    return std::to_string(field.of(config));
}
std::string write(const SeedField& field, RunConfig& config) {
    return std::to_string(field.of(config));
}
std::string write(const OptionalCountField& field, RunConfig& config) {
    const std::optional<int64_t> count = field.of(config);
    if (!count) return "auto";
    return *count == as_many_as_there_are ? "all" : std::to_string(*count);
}
std::string write(const RealField& field, RunConfig& config) {
    return fmt::format("{}", field.of(config));  // the shortest text that reads back the same
}
std::string write(const OptionalShareField& field, RunConfig& config) {
    const std::optional<double> share = field.of(config);
    return share ? fmt::format("{}", *share) : "auto";
}
std::string write(const SizeField& field, RunConfig& config) {
    const std::optional<uint64_t> size_bytes = field.of(config);
    if (!size_bytes) return "auto";
    const std::string_view per = field.per == SizeField::Per::second ? "/s" : "";
    for (const auto& [unit_bytes, unit] :
         {std::pair(offload::gib, "GiB"), std::pair(offload::mib, "MiB")}) {
        if (*size_bytes % unit_bytes != 0) continue;
        return fmt::format("{}{}{}", *size_bytes / unit_bytes, unit, per);
    }
    return fmt::format("{}{}", *size_bytes, per);
}
std::string write(const SharesField& field, RunConfig& config) {
    const std::optional<TierShares>& shares = field.of(config);
    return shares ? text_of(*shares) : "auto";
}
std::string write(const TierField& field, RunConfig& config) {
    const std::optional<Tier> tier = field.of(config);
    return tier ? std::string(name_of(*tier)) : "auto";
}
std::string write(const DtypeField& field, RunConfig& config) {
    return std::string(name_of(field.of(config)));
}
std::string write(const ChoiceField& field, RunConfig& config) {
    CHECK_LT(field.get(config), field.names.size());
    return std::string(field.names[field.get(config)]);
}

}  // namespace

std::optional<bool> switch_in(const YamlValue& value) {
    for (const char* word : {"true", "True", "TRUE", "yes", "on"}) {
        if (value.is(word)) return true;
    }
    for (const char* word : {"false", "False", "FALSE", "no", "off"}) {
        if (value.is(word)) return false;
    }
    return std::nullopt;
}

std::string set_value(RunConfig& config, const Key& key, const YamlValue& value) {
    const RunConfig before = config;
    const std::string fault =
        std::visit([&](const auto& field) { return read(field, value, config); }, key.field);
    CHECK(fault.empty() || config == before);
    return fault;
}

std::string text_of_value(const RunConfig& config, const Key& key) {
    RunConfig copy = config;  // fields are reached through a reference that could write
    const std::string text =
        std::visit([&](const auto& field) { return write(field, copy); }, key.field);
    CHECK(copy == config);
    CHECK(text.find('\n') == std::string::npos);
    return text;
}

}  // namespace headrace::engine
