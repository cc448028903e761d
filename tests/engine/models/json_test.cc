// Goal: what two readers could understand differently is refused. Method: small texts by hand.
#include "engine/models/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace headrace::engine {
namespace {

using nlohmann::json;
using offload::ErrorCode;
using offload::Result;
using testing::HasSubstr;

TEST(Json, ReadsValuesOfEveryKind) {
    const Result<json> value =
        parse_json(R"( {"a": [1, -2.5, null, true, "x"], "b": {"a": 1}} )", "f");
    ASSERT_TRUE(value.ok());
    EXPECT_EQ((*value)["a"].size(), 5u);
    EXPECT_EQ((*value)["b"]["a"], 1);
    EXPECT_EQ(shown(*value), R"({"a":[1,-2.5,null,true,"x"],"b":{"a":1}})");
}

TEST(Json, RefusesNamingTheFault) {
    const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
    const std::pair<std::string, const char*> rows[] = {
        {R"({"a": 1, "b": 2, "a": 1})", "\"a\" stands twice"},
        {R"({"x": [{"k": {}, "k": {}}]})", "\"k\" stands twice"},
        {R"({"a": 1)", "not valid JSON"},
        {R"({"a": 1} trailing)", "not valid JSON"},
        {"", "not valid JSON"},
        {deep, "nested deeper than 32"},
    };
    for (const auto& [text, said] : rows) {
        const Result<json> value = parse_json(text, "dir/f.json");
        ASSERT_FALSE(value.ok()) << said;
        EXPECT_EQ(value.error().code, ErrorCode::bad_data);
        EXPECT_THAT(value.error().text(), HasSubstr("dir/f.json"));
        EXPECT_THAT(value.error().text(), HasSubstr(said));
    }
}

TEST(Json, ShowsTheBeginningOfWhatIsLong) {
    EXPECT_EQ(shown(json(std::string(500, 'x'))).size(), 123u);
}

}  // namespace
}  // namespace headrace::engine
