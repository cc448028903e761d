// The fields of a config.json, read one by one with their ranges. The first fault is kept and the
// reading goes on, so that reading code has no branches. Null counts as absent, as in transformers.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "offload/result.h"

namespace headrace::engine {

// Largest numbers that a config may hold: far above any model, far below any overflow of the
// products taken of them (7 matrices of side * side, block_count_max times, stay under 2^57).
inline constexpr int64_t side_max = int64_t{1} << 20;
inline constexpr int64_t block_count_max = 10'000;
inline constexpr int64_t vocabulary_max = int64_t{1} << 30;
inline constexpr int64_t positions_max = int64_t{1} << 40;

class Fields {
  public:
    // `object` must outlive this; `source` names the file in errors.
    Fields(const nlohmann::json& object, std::string source);

    const nlohmann::json* find(const char* name) const { return find_in(object_, name); }
    static const nlohmann::json* find_in(const nlohmann::json& object, const char* name);

    struct Range {
        int64_t min = 1;
        int64_t max = side_max;
    };
    // An integer in the range; absent: the fallback, or a fault if there is none.
    int64_t integer(const char* name, Range range, std::optional<int64_t> fallback = {}) {
        return integer_of(find(name), name, range, fallback);
    }
    int64_t integer_of(const nlohmann::json* value, const char* name, Range range,
                       std::optional<int64_t> fallback);

    // A positive finite number.
    double positive_of(const nlohmann::json* value, const char* name,
                       std::optional<double> fallback);

    bool boolean(const char* name, bool fallback);

    // `supported` says what would be read.
    void refuse(const char* name, const nlohmann::json& value, std::string_view supported);
    void fail(const std::string& what);

    const std::optional<offload::Error>& error() const { return error_; }

  private:
    const nlohmann::json& object_;
    std::string source_;
    std::optional<offload::Error> error_;
};

}  // namespace headrace::engine
