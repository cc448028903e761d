#include "engine/models/config_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/models/json.h"
#include "offload/check.h"

namespace headrace::engine {

using nlohmann::json;
using offload::Error;
using offload::ErrorCode;

Fields::Fields(const json& object, std::string source)
    : object_(object), source_(std::move(source)) {
    CHECK(object_.is_object());
    CHECK(!source_.empty());
}

const json* Fields::find_in(const json& object, const char* name) {
    CHECK(object.is_object());
    const auto place = object.find(name);
    return place == object.end() || place->is_null() ? nullptr : &*place;
}

int64_t Fields::integer_of(const json* value, const char* name, Range range,
                           std::optional<int64_t> fallback) {
    CHECK_LE(range.min, range.max);
    if (value == nullptr) {
        if (!fallback) fail(fmt::format("{} is missing", name));
        return fallback.value_or(range.min);
    }
    const bool is_small = value->is_number_integer() &&
                          (!value->is_number_unsigned() ||
                           value->get<uint64_t>() <= static_cast<uint64_t>(positions_max));
    const int64_t number = is_small ? value->get<int64_t>() : 0;
    if (!is_small || number < range.min || number > range.max) {
        fail(fmt::format("{} is {}, but must be an integer from {} to {}", name, shown(*value),
                         range.min, range.max));
        return range.min;
    }
    return number;
}

double Fields::positive_of(const json* value, const char* name, std::optional<double> fallback) {
    if (value == nullptr) {
        if (!fallback) fail(fmt::format("{} is missing", name));
        return fallback.value_or(1.0);
    }
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!std::isfinite(number) || number <= 0.0) {
        fail(fmt::format("{} is {}, but must be a positive number", name, shown(*value)));
        return 1.0;
    }
    return number;
}

bool Fields::boolean(const char* name, bool fallback) {
    const json* value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
        fail(fmt::format("{} is {}, but must be true or false", name, shown(*value)));
        return fallback;
    }
    return value->get<bool>();
}

void Fields::refuse(const char* name, const json& value, std::string_view supported) {
    fail(fmt::format("{} is {}, which is not supported; supported: {}", name, shown(value),
                     supported));
}

void Fields::fail(const std::string& what) {
    if (error_) return;
    error_ = Error{ErrorCode::bad_data,
                   fmt::format("reading the model config {}: {}", source_, what), ""};
}

}  // namespace headrace::engine
