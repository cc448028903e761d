#include "engine/resume/identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/models/json.h"

namespace headrace::engine {

using Json = nlohmann::ordered_json;
using offload::CommitRecord;
using offload::Error;
using offload::ErrorCode;
using offload::Result;

namespace {

Json to_json(const std::vector<Fact>& facts) {
    Json object = Json::object();
    for (const Fact& fact : facts) {
        CHECK(!object.contains(fact.name));
        object[fact.name] = fact.value;
    }
    return object;
}

std::vector<Fact> facts_of(const Json& object) {
    std::vector<Fact> facts;
    for (const auto& [name, value] : object.items()) {
        facts.push_back({name, value.get<std::string>()});
    }
    return facts;
}

std::string value_in(const std::vector<Fact>& facts, std::string_view name) {
    const auto fact = std::ranges::find(facts, name, &Fact::name);
    return fact == facts.end() ? "not there" : fact->value;
}

// One line per fact that is not the same in both.
std::vector<std::string> differences(const std::vector<Fact>& saved, const std::vector<Fact>& now) {
    std::set<std::string> seen;
    std::vector<std::string> lines;
    for (const std::vector<Fact>* facts : {&saved, &now}) {
        for (const Fact& fact : *facts) {
            const std::string before = value_in(saved, fact.name);
            const std::string after = value_in(now, fact.name);
            if (before == after || !seen.insert(fact.name).second) continue;
            lines.push_back(fmt::format("{} was {} and is {}", fact.name, before, after));
        }
    }
    return lines;
}

// Facts that are keys of a run file, of the same name and value.
constexpr std::array<std::string_view, 9> settings = {"compute_threads",
                                                      "kernels",
                                                      states_fact,
                                                      "dtype",
                                                      "gradients",
                                                      "gradient_accumulation_steps",
                                                      "per_device_train_batch_size",
                                                      "shuffle",
                                                      "seed"};

// Facts of numerics that say what computes, not what is asked for.
constexpr std::array<std::string_view, 7> arithmetic = {
    "numerics", "library", "cpu", "matmul", "kernels", "compute_threads", "head_chunk"};

bool is_arithmetic(const Fact& fact) {
    return std::ranges::find(arithmetic, fact.name) != arithmetic.end();
}

bool is_refused(const Fact& fact, AllowedChanges allowed) {
    if (fact.name == states_fact) return !allowed.states;
    return !allowed.arithmetic || !is_arithmetic(fact);
}

std::vector<Fact> those(const std::vector<Fact>& facts, const auto& are_meant) {
    std::vector<Fact> some;
    std::ranges::copy_if(facts, std::back_inserter(some), are_meant);
    return some;
}

bool has(const std::vector<Fact>& facts, std::string_view name) {
    const auto fact = std::ranges::find(facts, name, &Fact::name);
    return fact != facts.end() && !fact->value.empty();
}

// Facts of numerics that runs were saved without before they were asked for.
constexpr std::array<std::string_view, 1> asked_later = {"cpu"};

bool is_unsaid(const Fact& fact, const Identity& saved) {
    return std::ranges::find(asked_later, fact.name) != asked_later.end() &&
           !has(saved.numerics, fact.name);
}

// The two to compare: facts that the saved run does not say are left out of both.
std::vector<std::string> numerics_differences(const Identity& saved, const Identity& now,
                                              const auto& are_meant) {
    const auto are_compared = [&](const Fact& fact) {
        return are_meant(fact) && !is_unsaid(fact, saved);
    };
    return differences(those(saved.numerics, are_compared), those(now.numerics, are_compared));
}

// "compute_threads=2 seed=42": of the facts that are refused, what to type so that they are those
// of the saved run.
std::string settings_as_saved(const Identity& saved, const Identity& now, AllowedChanges allowed) {
    std::vector<std::string> words;
    for (const auto facts : {&Identity::numerics, &Identity::job}) {
        for (const Fact& fact : saved.*facts) {
            if (std::ranges::find(settings, fact.name) == settings.end()) continue;
            if (facts == &Identity::numerics && !is_refused(fact, allowed)) continue;
            if (fact.value == value_in(now.*facts, fact.name)) continue;
            words.push_back(fmt::format("{}={}", fact.name, fact.value));
        }
    }
    return fmt::format("{}", fmt::join(words, " "));
}

// Everything that makes it another run.
std::vector<std::string> refusals(const Identity& saved, const Identity& now,
                                  AllowedChanges allowed) {
    std::vector<std::string> lines = numerics_differences(
        saved, now, [&](const Fact& fact) { return is_refused(fact, allowed); });
    std::ranges::move(differences(saved.job, now.job), std::back_inserter(lines));
    return lines;
}

// What to type so that a run goes on that differs by nothing but what can be allowed; "" if it
// differs by more.
std::string permissions_for(const Identity& saved, const Identity& now, AllowedChanges allowed) {
    if (!refusals(saved, now, {.states = true, .arithmetic = true}).empty()) return "";
    std::vector<std::string> words;
    if (!allowed.states && !refusals(saved, now, {.states = false, .arithmetic = true}).empty()) {
        words.emplace_back("convert_optimizer_states=true (its states become what is wanted now)");
    }
    if (!allowed.arithmetic &&
        !refusals(saved, now, {.states = true, .arithmetic = false}).empty()) {
        words.emplace_back("allow_other_numerics=true (other bits than it would have had)");
    }
    CHECK_LE(words.size(), 2u);
    return fmt::format("{}", fmt::join(words, " and "));
}

}  // namespace

std::string describe(const std::vector<Fact>& facts) {
    std::vector<std::string> texts;
    for (const Fact& fact : facts) texts.push_back(fmt::format("{} {}", fact.name, fact.value));
    return fmt::format("{}", fmt::join(texts, ", "));
}

std::string plain_text(std::string_view text) {
    std::string plain(text.substr(0, chosen_text_bytes_max));
    const auto is_other = [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; };
    std::ranges::replace_if(plain, is_other, '?');
    return plain;
}

CommitRecord record_of(const Identity& identity, const Progress& progress) {
    const Json payload = {{"job", to_json(identity.job)},
                          {"recipe", to_json(identity.recipe)},
                          {"part_bytes", identity.part_bytes},
                          {"skipped", progress.skipped_count},
                          {"skipped_in_a_row", progress.skipped_in_a_row},
                          {"hysteresis_left", progress.loss_scale.hysteresis_left},
                          {"history", progress.history},
                          {"moves", identity.moves}};
    return {.attempts = static_cast<uint64_t>(progress.attempts),
            .updates = static_cast<uint64_t>(progress.updates),
            .gradient_scale = progress.loss_scale.scale,
            .scale_steps = static_cast<uint64_t>(progress.loss_scale.good_step_count),
            .numerics = json_text(to_json(identity.numerics)),
            .payload = json_text(payload)};
}

Result<Saved> read_record(const CommitRecord& record) {
    const auto refuse = [&](const std::string& why) {
        return Error{ErrorCode::bad_data,
                     fmt::format("cannot read what the commit of step {} says", record.attempts),
                     why + "; another version of the program may have written it"};
    };
    Saved saved;
    try {
        const Json payload = Json::parse(record.payload);
        saved.identity = {.numerics = facts_of(Json::parse(record.numerics)),
                          .job = facts_of(payload.at("job")),
                          .recipe = facts_of(payload.at("recipe")),
                          .part_bytes = payload.at("part_bytes").get<uint64_t>(),
                          .moves = payload.value("moves", std::vector<std::string>{})};
        saved.progress = {
            .attempts = static_cast<int64_t>(record.attempts),
            .updates = static_cast<int64_t>(record.updates),
            .skipped_count = payload.at("skipped").get<int64_t>(),
            .skipped_in_a_row = payload.at("skipped_in_a_row").get<int64_t>(),
            .loss_scale = {.scale = record.gradient_scale,
                           .good_step_count = static_cast<int64_t>(record.scale_steps),
                           .hysteresis_left = payload.at("hysteresis_left").get<int64_t>()},
            .history = payload.at("history").get<std::string>()};
    } catch (const Json::exception& fault) {
        return refuse(fault.what());
    }
    const Progress& progress = saved.progress;
    if (progress.attempts != progress.updates + progress.skipped_count) {
        return refuse(fmt::format("{} steps are not {} updates and {} skipped ones",
                                  progress.attempts, progress.updates, progress.skipped_count));
    }
    const LossScale& scale = progress.loss_scale;
    if (!(scale.scale > 0) || scale.good_step_count < 0 || scale.hysteresis_left < 1) {
        return refuse(fmt::format("a loss scale of {} cannot be", scale.scale));
    }
    return saved;
}

Result<offload::StateFormat> states_of(const Identity& identity) {
    const auto format = offload::parse_state_format(value_in(identity.numerics, states_fact));
    if (format) return format;
    return Error{ErrorCode::bad_data, "cannot tell how the states of the saved run are kept",
                 format.error().text()};
}

offload::Status check_same_run(const Identity& saved, const Identity& now, AllowedChanges allowed) {
    const std::vector<std::string> lines = refusals(saved, now, allowed);
    if (lines.empty()) return {};
    const std::string words = settings_as_saved(saved, now, allowed);
    std::string remedy = "start it as it was" + (words.empty() ? "" : ", with " + words);
    const std::string permissions = permissions_for(saved, now, allowed);
    if (!permissions.empty()) remedy += ", or go on with " + permissions;
    return Error{ErrorCode::bad_data, "this is not the run that was saved",
                 fmt::format("{}; {}, or begin anew with another output_dir",
                             fmt::join(lines, "; "), remedy)};
}

std::vector<std::string> arithmetic_changes(const Identity& saved, const Identity& now) {
    return numerics_differences(saved, now, is_arithmetic);
}

std::vector<std::string> unsaid_arithmetic(const Identity& saved, const Identity& now) {
    std::vector<std::string> lines;
    for (const Fact& fact : now.numerics) {
        if (!is_unsaid(fact, saved)) continue;
        lines.push_back(fmt::format("{} (is {})", fact.name, fact.value));
    }
    return lines;
}

Identity identity_after(int64_t attempts, const Saved& saved, const Identity& now) {
    CHECK_GE(attempts, saved.progress.attempts);
    if (attempts == saved.progress.attempts) {
        Identity same = saved.identity;
        const auto states = std::ranges::find(same.numerics, states_fact, &Fact::name);
        const std::string value = value_in(now.numerics, states_fact);
        if (states != same.numerics.end()) states->value = value;
        same.part_bytes = now.part_bytes;
        return same;
    }
    Identity other = now;
    other.moves = saved.identity.moves;
    const std::vector<std::string> changes = arithmetic_changes(saved.identity, now);
    if (changes.empty()) return other;
    const std::string move =
        fmt::format("after step {}: {}", saved.progress.attempts, fmt::join(changes, ", "));
    other.moves.push_back(move.substr(0, move_bytes_max));
    if (other.moves.size() > moves_max) other.moves.erase(other.moves.begin() + 1);
    CHECK_LE(other.moves.size(), moves_max);
    return other;
}

std::vector<std::string> recipe_changes(const Identity& saved, const Identity& now) {
    return differences(saved.recipe, now.recipe);
}

}  // namespace headrace::engine
