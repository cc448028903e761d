// Goal: the judgements on settings that people ask about in public are the right ones, with the
// right numbers and the right advice. Method: a YAML file each in this folder, with the bytes of
// the public answer; properties that hold for any numbers, over a grid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/config/yaml_value.h"
#include "offload/units.h"
#include "offload/zero.h"

namespace headrace::offload {
namespace {

using engine::YamlValue;

// The item of a map; every key of a scenario must be there.
const YamlValue& item(const YamlValue& map, const std::string& key) {
    const auto place = std::ranges::find(map.keys, key);
    if (place != map.keys.end()) return map.items[static_cast<size_t>(place - map.keys.begin())];
    ADD_FAILURE() << "no key " << key << " in line " << map.line;
    std::abort();
}

double number(const YamlValue& map, const std::string& key) {
    return std::strtod(item(map, key).text.c_str(), nullptr);
}

uint64_t bytes(const YamlValue& map, const std::string& key) {
    return parse_bytes(item(map, key).text).value();
}

Tier tier(const YamlValue& map, const std::string& key) {
    return parse_tier(item(map, key).text).value();
}

std::string name_of(Fit fit) {
    switch (fit) {
        case Fit::fits: return "fits";
        case Fit::does_not_fit: return "does_not_fit";
        case Fit::needlessly_slow: return "needlessly_slow";
    }
    return "";
}

void judge_scenario(const YamlValue& root) {
    const YamlValue& per_parameter = item(root, "bytes");
    const YamlValue& on = item(root, "on");
    const ShardedStates states{
        .parameter_count = number(root, "parameters"),
        .rank_count = static_cast<uint32_t>(number(root, "ranks")),
        .ranks_per_node = static_cast<uint32_t>(number(root, "ranks_per_node")),
        .stage = static_cast<int>(number(root, "stage")),
        .weight_bytes = number(per_parameter, "weight"),
        .gradient_bytes = number(per_parameter, "gradient"),
        .states_bytes = number(per_parameter, "states"),
        .weights = tier(on, "weights"),
        .gradients = tier(on, "gradients"),
        .states = tier(on, "states")};
    const YamlValue& ceilings = item(root, "ceilings");
    const Judgement judgement = judge(states, {.gpu_bytes = bytes(ceilings, "card"),
                                               .ram_bytes = bytes(ceilings, "ram"),
                                               .nvme_bytes = bytes(ceilings, "drives")});
    const YamlValue& expected = item(root, "expected");
    EXPECT_EQ(name_of(judgement.fit), item(expected, "judgement").text);
    EXPECT_EQ(judgement.needs.gpu_bytes, bytes(expected, "card"));
    EXPECT_EQ(judgement.needs.ram_bytes, bytes(expected, "ram"));
    EXPECT_EQ(judgement.better ? describe(*judgement.better) : "none",
              item(expected, "better").text);
}

TEST(Scenarios, AreJudgedAsInPublic) {
    int scenario_count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(HEADRACE_SCENARIOS)) {
        if (entry.path().extension() != ".yaml") continue;
        SCOPED_TRACE(entry.path().filename().string());
        std::ifstream file(entry.path());
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const auto parsed = engine::parse_yaml(text, entry.path());
        ASSERT_TRUE(parsed.ok()) << parsed.error().text();
        ASSERT_TRUE(parsed->faults.empty()) << parsed->faults.front();
        judge_scenario(parsed->root);
        ++scenario_count;
    }
    EXPECT_EQ(scenario_count, 6);
}

// Over stages, ranks and places: sharding never takes more, all bytes are somewhere, and advice is
// sound.
TEST(Scenarios, AdviceIsSoundForAnyNumbers) {
    const TierBytes ceilings{
        .gpu_bytes = 24'000'000'000, .ram_bytes = 128'000'000'000, .nvme_bytes = 0};
    int advised_count = 0;
    for (const double billion : {0.1, 1.3, 7.0, 30.0}) {
        for (const uint32_t ranks : {1u, 2u, 8u}) {
            uint64_t before_bytes = UINT64_MAX;
            for (const int stage : {0, 1, 2, 3}) {
                ShardedStates states{.parameter_count = billion * 1e9,
                                     .rank_count = ranks,
                                     .ranks_per_node = ranks,
                                     .stage = stage};
                const TierBytes on_card = bytes_of_node(states);
                EXPECT_LE(on_card.gpu_bytes, before_bytes);
                before_bytes = on_card.gpu_bytes;
                const Judgement judgement = judge(states, ceilings);
                states.states = Tier::ram;
                const TierBytes apart = bytes_of_node(states);
                EXPECT_NEAR(static_cast<double>(apart.gpu_bytes * ranks + apart.ram_bytes),
                            static_cast<double>(on_card.gpu_bytes * ranks), 64.0);
                if (!judgement.better) continue;
                ++advised_count;
                EXPECT_EQ(shortfall(judgement.better_needs, ceilings), 0u);
                EXPECT_NE(judgement.fit, Fit::fits);
            }
        }
    }
    EXPECT_GT(advised_count, 10);
}

}  // namespace
}  // namespace headrace::offload
