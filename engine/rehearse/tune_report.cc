#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/config/keys.h"
#include "engine/models/json.h"
#include "engine/rehearse/tune.h"

namespace headrace::engine {

namespace {

using Json = nlohmann::ordered_json;

std::string range_of(const std::vector<double>& ratios) {
    const auto [least, most] = std::ranges::minmax(ratios);
    return fmt::format("{:.3f} to {:.3f}", least, most);
}

std::string verdict_of(const Tuning& tuning) {
    const TuneCandidate& won = tuning.candidates[tuning.winner];
    const size_t round_count = won.rounds.size();
    if (tuning.winner == 0) {
        return fmt::format(
            "kept: the planner's choice; no other was faster in each of {} rounds and by {:.0f}% "
            "in the median: what is less is noise",
            round_count, 100 * gain_min);
    }
    return fmt::format("won: {}, {:.3f} of the planner's step ({} in {} rounds)", won.what,
                       tuning.ratio_of(tuning.winner), range_of(tuning.ratios_of(tuning.winner)),
                       round_count);
}

}  // namespace

std::vector<std::string> describe(const Tuning& tuning) {
    CHECK(!tuning.candidates.front().rounds.empty());
    const Rehearsal& first = tuning.candidates.front().rounds.front();
    const std::string mark = first.emulated.empty() ? "" : "EMULATED " + first.emulated + ": ";
    std::vector<std::string> lines = {
        fmt::format("{}{} of {} placements measured, {} interleaved rounds of {} steps of {} "
                    "blocks; seconds a step of the whole model, {} blocks, {} tokens",
                    mark, tuning.candidates.size(), tuning.predicted_count,
                    tuning.candidates.front().rounds.size(), first.steps_s.size(),
                    first.block_count, first.whole_block_count, first.token_count),
        fmt::format("  {:<34} {:>10} {:>10} {:>11}  {}", "", "predicted", "measured", "of planned",
                    "in its rounds")};
    for (size_t i = 0; i < tuning.candidates.size(); ++i) {
        const TuneCandidate& one = tuning.candidates[i];
        lines.push_back(fmt::format(
            "{} {:<34} {:>10.3f} {:>10.3f} {:>11.3f}  {}", i == tuning.winner ? "*" : " ", one.what,
            one.predicted_s, one.measured_s(), tuning.ratio_of(i), range_of(tuning.ratios_of(i))));
    }
    lines.push_back(mark + verdict_of(tuning));
    return lines;
}

std::string json_of(const Tuning& tuning, const std::string& run_file) {
    CHECK(!tuning.candidates.front().rounds.empty());
    CHECK_LT(tuning.winner, tuning.candidates.size());
    const Rehearsal& first = tuning.candidates.front().rounds.front();
    Json candidates = Json::array();
    for (size_t i = 0; i < tuning.candidates.size(); ++i) {
        const TuneCandidate& one = tuning.candidates[i];
        Json settings = Json::object();
        for (const std::string_view key : one.settings.keys) {
            settings[std::string(key)] = text_of_value(one.settings.config, *find_key(key));
        }
        std::vector<double> parts_s;
        for (const Rehearsal& round : one.rounds) parts_s.push_back(round.step_s);
        candidates.push_back({{"name", one.what},
                              {"predicted_step_s", one.predicted_s},
                              {"measured_step_s", one.measured_s()},
                              {"part_steps_s", parts_s},
                              {"ratios", tuning.ratios_of(i)},
                              {"ratio", tuning.ratio_of(i)},
                              {"settings", settings}});
    }
    const Json json = {{"emulated", first.emulated.empty() ? Json(nullptr) : Json(first.emulated)},
                       {"blocks", first.block_count},
                       {"whole_blocks", first.whole_block_count},
                       {"tokens", first.token_count},
                       {"predicted", tuning.predicted_count},
                       {"winner", tuning.candidates[tuning.winner].what},
                       {"is_planned", tuning.winner == 0},
                       {"run_file", run_file.empty() ? Json(nullptr) : Json(run_file)},
                       {"candidates", candidates}};
    // A path may hold any bytes, and so may the name of a card.
    return json_text(json, 2);
}

}  // namespace headrace::engine
