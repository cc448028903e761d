// Goal: every row of the tables works, and no row shadows a key or another row.
// Method: the tables are walked; each name is given to the parser as a user would.
#include "engine/config/aliases.h"

#include <gmock/gmock.h>

#include <set>

#include "engine/config/keys.h"
#include "engine/config/load_config.h"

namespace headrace::engine {
namespace {

using ::testing::HasSubstr;

ConfigText with(const std::string& line) {
    return {.yaml = line + "\n", .overrides = {"model=m", "train_data=d"}};
}

TEST(AliasesTest, no_name_means_two_things) {
    std::set<std::string_view> names;
    for (const Key& key : all_keys()) EXPECT_TRUE(names.insert(key.name).second) << key.name;
    for (const Alias& alias : all_aliases()) {
        EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
        EXPECT_EQ(find_key(alias.name), nullptr) << alias.name;
        ASSERT_NE(find_key(alias.key), nullptr) << alias.key;
        EXPECT_EQ(find_key(alias.key)->name, alias.key);
    }
    for (const SwitchAlias& alias : all_switch_aliases()) {
        EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
        EXPECT_NE(find_key(alias.key), nullptr) << alias.key;
    }
    for (const ForeignSetting& setting : all_foreign_settings()) {
        EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
        EXPECT_EQ(find_key(setting.name), nullptr) << setting.name;
    }
}

TEST(AliasesTest, each_alias_sets_its_key) {
    for (const Alias& alias : all_aliases()) {
        const Key& key = *find_key(alias.key);
        RunConfig config;  // a value other than the default
        std::string value = "3";
        if (std::holds_alternative<TextField>(key.field)) value = "other";
        if (std::holds_alternative<OptionalSwitchField>(key.field)) value = "false";
        if (std::holds_alternative<TextListField>(key.field)) value = "[other]";
        if (std::holds_alternative<SizeField>(key.field)) value = "7MiB";
        if (std::holds_alternative<DtypeField>(key.field)) value = "fp32";
        if (std::holds_alternative<ChoiceField>(key.field)) value = "cosine";
        if (std::holds_alternative<SwitchField>(key.field)) value = "true";
        if (std::holds_alternative<RealField>(key.field)) value = "0.5";
        const auto loaded =
            parse_config({.yaml = std::string(alias.name) + ": " + value + "\n" +
                                  (alias.key == "model" ? "" : "model: m\n") +
                                  (alias.key == "train_data" ? "" : "train_data: d\n")});
        ASSERT_TRUE(loaded.ok()) << alias.name << ": " << loaded.error().text();
        EXPECT_EQ(text_of_value(loaded->config, key), value) << alias.name;
        EXPECT_TRUE(loaded->origins.contains(std::string(alias.key))) << alias.name;
    }
}

TEST(AliasesTest, each_foreign_setting_is_accepted_with_its_note_or_refused_by_name) {
    for (const ForeignSetting& setting : all_foreign_settings()) {
        const std::string name(setting.name);
        if (setting.accepted != "*") {
            const auto refused = parse_config(with(name + ": something_else"));
            ASSERT_FALSE(refused.ok()) << name;
            EXPECT_THAT(refused.error().text(), HasSubstr("run.yaml:1: " + name + ": "));
            EXPECT_THAT(refused.error().text(), HasSubstr(std::string(setting.refusal)));
            EXPECT_FALSE(setting.refusal.empty()) << name;
        }
        if (setting.accepted.empty()) continue;
        const std::string first(setting.accepted.substr(0, setting.accepted.find('|')));
        const auto accepted = parse_config(with(name + ": " + (first == "*" ? "true" : first)));
        ASSERT_TRUE(accepted.ok()) << name << ": " << accepted.error().text();
        EXPECT_EQ(accepted->notes.size(), setting.note.empty() ? 0u : 1u) << name;
    }
}

TEST(AliasesTest, switches_choose_the_dtype) {
    EXPECT_EQ(parse_config(with("bf16: true"))->config.dtype, offload::Dtype::bf16);
    EXPECT_EQ(parse_config(with("fp32: true"))->config.dtype, offload::Dtype::fp32);
    EXPECT_EQ(parse_config(with("bf16: false"))->config.dtype, offload::Dtype::bf16);
    EXPECT_EQ(parse_config(with("fp16: true"))->config.dtype, offload::Dtype::fp16);
    EXPECT_EQ(parse_config(with("bf16: {enabled: true}"))->config.dtype, offload::Dtype::bf16);
    EXPECT_THAT(parse_config(with("bf16: 7")).error().text(), HasSubstr("must be true or false"));
    EXPECT_THAT(parse_config(with("bf16: true\nfp32: true")).error().text(),
                HasSubstr("'dtype' was given another value in run.yaml:1"));
}

}  // namespace
}  // namespace headrace::engine
