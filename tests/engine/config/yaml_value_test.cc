// Goal: YAML becomes a plain tree with lines, and what libraries forgive is refused.
// Method: small texts, one per rule.
#include "engine/config/yaml_value.h"

#include <gmock/gmock.h>

namespace headrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = YamlValue::Kind;

TEST(YamlValueTest, scalars_stay_text_and_lines_are_those_of_the_keys) {
    const auto parsed = parse_yaml("a: 1e-5\n\nb: [x, 'y z']\nc:\n  d: yes\ne:\n", "run.yaml");
    ASSERT_TRUE(parsed.ok());
    const YamlValue& root = parsed->root;
    EXPECT_THAT(root.keys, ElementsAre("a", "b", "c", "e"));
    EXPECT_EQ(root.items[0].text, "1e-5");
    EXPECT_EQ(root.items[0].line, 1);
    EXPECT_EQ(root.items[1].items[1].text, "y z");
    EXPECT_EQ(root.items[1].line, 3);
    EXPECT_EQ(root.items[2].items[0].text, "yes");
    EXPECT_EQ(root.items[2].items[0].line, 5);
    EXPECT_EQ(root.items[3].kind, Kind::null);
    EXPECT_TRUE(parsed->faults.empty());
}

TEST(YamlValueTest, a_key_given_twice_is_a_fault_with_both_lines) {
    const auto parsed = parse_yaml("seed: 1\nmodel: m\nseed: 2\n", "run.yaml");
    ASSERT_TRUE(parsed.ok());
    EXPECT_THAT(parsed->faults, ElementsAre("line 3: key 'seed' is given twice (first in line 1)"));
}

TEST(YamlValueTest, json_is_yaml_too) {
    const auto parsed =
        parse_yaml(R"({"model": "m", "offload": {"gpu_budget": "4GiB"}})", "r.json");
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->root.items[1].items[0].text, "4GiB");
}

TEST(YamlValueTest, what_is_no_yaml_is_refused_with_its_place) {
    const auto parsed = parse_yaml("a: 1\nb: [1, 2\n", "run.yaml");
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, offload::ErrorCode::usage);
    EXPECT_THAT(parsed.error().text(), HasSubstr("cannot read run.yaml as YAML: line 3"));
    EXPECT_THAT(parse_yaml("a: 1\n---\nb: 2\n", "r").error().text(), HasSubstr("more than one"));
}

TEST(YamlValueTest, depth_and_number_of_values_are_bounded) {
    EXPECT_THAT(parse_yaml(std::string(20, '[') + std::string(20, ']'), "r").error().text(),
                HasSubstr("nested deeper than 8"));
    std::string bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n";
    for (char c = 'b'; c <= 'f'; ++c) {
        bomb += std::string(1, c) + ": &" + c + " [";
        for (int i = 0; i < 10; ++i) bomb += std::string(i ? "," : "") + "*" + char(c - 1);
        bomb += "]\n";
    }
    EXPECT_THAT(parse_yaml(bomb, "r").error().text(), HasSubstr("more than 10000 values"));
}

TEST(YamlValueTest, quoted_texts_read_back_as_they_were) {
    for (const std::string text : {"plain", "", "a b", "no: yes", "#x", "-", "--x", "'", "\"q\"",
                                   "back\\slash", "tab\tnewline\n", "*star", "/mnt/nvme 0", "~",
                                   "[a]", "%10", "10%", "\xC3\xA9t\xC3\xA9"}) {
        const auto parsed = parse_yaml("k: " + yaml_quoted(text), "r");
        ASSERT_TRUE(parsed.ok()) << text << ' ' << parsed.error().text();
        EXPECT_EQ(parsed->root.items[0].text, text) << yaml_quoted(text);
    }
}

}  // namespace
}  // namespace headrace::engine
