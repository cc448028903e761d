#include "engine/cli/typed_run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>

#include "engine/config/load_config.h"
#include "engine/config/yaml_value.h"
#include "offload/check.h"

namespace headrace::engine {

using offload::Result;

namespace {

std::string help_of_keys() {
    std::string text = "\nKeys (those of the offload section also without its name):\n";
    for (const auto& [name, help] : config_keys()) text += fmt::format("  {:<41} {}\n", name, help);
    return text + exit_codes;
}

std::string describe_places(const std::vector<std::string>& places) {
    if (places.empty()) return "none was named";
    return fmt::format("it got {} of them: {}", places.size(), fmt::join(places, " "));
}

// The commands on a run file, or on a model and perhaps its data.
template <typename Command>
CommandLine command_on_one(std::string_view name, Command command,
                           const std::vector<std::string>& typed, const KeyOptions& keys) {
    auto [places, overrides] = split(typed);
    CHECK_EQ(places.size() + overrides.size(), typed.size());
    if (places.empty() || places.size() > 2) {
        return refused(
            fmt::format("{} takes a run file, or MODEL and perhaps DATA, and then key=value; {}",
                        name, describe_places(places)));
    }
    command.what = places[0];
    command.overrides = std::move(overrides);
    // First, so that `train_data=...` on the same line wins.
    if (places.size() == 2) {
        command.overrides.insert(command.overrides.begin(), "train_data=" + yaml_quoted(places[1]));
    }
    keys.add_to(command.overrides);
    return command;
}

// "4x32": samples of a micro-batch, micro-batches of a step.
Result<BenchStepCommand::Batch> batch_of(const std::string& text) {
    const auto number = [](std::string_view digits) {
        int64_t value = 0;
        const auto [rest, failure] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value);
        const bool is_whole = failure == std::errc{} && rest == digits.data() + digits.size();
        return is_whole && value >= 1 && value <= 1 << 20 ? value : 0;
    };
    const size_t cross = text.find('x');
    if (cross != std::string::npos) {
        const BenchStepCommand::Batch batch{
            .row_count = number(std::string_view(text).substr(0, cross)),
            .micro_batch_count = number(std::string_view(text).substr(cross + 1))};
        if (batch.row_count > 0 && batch.micro_batch_count > 0) return batch;
    }
    return offload::Error{
        offload::ErrorCode::usage,
        fmt::format("--batches {}: samples of a micro-batch and micro-batches of a step, as in 1x8",
                    text),
        ""};
}

using Way = BenchStepCommand::Way;
constexpr std::array<std::pair<std::string_view, Way>, 4> named_ways = {
    {{"planned", Way::planned},
     {"gated", Way::gated},
     {"serial", Way::serial},
     {"classic", Way::classic}}};

std::vector<std::string> names_of_ways() {
    std::vector<std::string> names;
    for (const auto& [name, way] : named_ways) names.emplace_back(name);
    return names;
}

constexpr const char* what_help =
    "run.yaml | MODEL (a folder or a config.json) [DATA], then key=value ...";

}  // namespace

TypedTrain::TypedTrain(CLI::App& parent) {
    CLI::App* train = parent.add_subcommand("train", "Fine-tune: run.yaml, or MODEL DATA");
    train->add_option("what", words, "run.yaml | MODEL DATA, then key=value ...");
    add_nvme(*train, keys);
    add_machine(*train, keys);
    train->footer(help_of_keys());
}

CommandLine TypedTrain::read() const {
    TrainCommand command;
    const auto [places, overrides] = split(words);
    CHECK_EQ(places.size() + overrides.size(), words.size());
    command.overrides = overrides;
    if (places.size() == 2) {
        // Before what was typed, so that `model=...` on the same line wins.
        command.overrides.insert(
            command.overrides.begin(),
            {"model=" + yaml_quoted(places[0]), "train_data=" + yaml_quoted(places[1])});
    } else if (places.size() == 1) {
        command.run_file = places[0];
    } else {
        return refused(
            fmt::format("train takes a run file (headrace init MODEL DATA > run.yaml makes one), "
                        "or MODEL and DATA, and then key=value; {}",
                        describe_places(places)));
    }
    keys.add_to(command.overrides);
    return command;
}

TypedPlan::TypedPlan(CLI::App& parent) {
    CLI::App* plan = parent.add_subcommand(
        "plan", "Predict a run on a machine: what fits where, how long a step takes, what binds");
    plan->add_option("what", words, what_help);
    add_nvme(*plan, keys);
    plan->add_option("--machine", command.machine_file,
                     "What the machine has and how fast it is: see configs/hardware [this one, as "
                     "doctor --probe measured it]");
    plan->add_option("--ranks", command.rank_count,
                     "Only say whether the states fit so many cards under ZeRO")
        ->check(CLI::Range(1, 1 << 20));
    plan->add_option("--ranks-per-node", command.ranks_per_node, "Cards of one machine")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    plan->add_option("--stage", command.stage, "Of ZeRO")
        ->check(CLI::Range(0, 3))
        ->capture_default_str();
    plan->add_flag("--json", command.is_json, "Print one JSON object");
    plan->add_option("--html", command.html_file, "Draw the step into this file too");
    within(plan->add_option("--price", command.price_per_hour, "Of an hour, in any currency"), 0,
           1e6);
}

CommandLine TypedPlan::read() const {
    return command_on_one("plan", command, words, keys);
}

TypedRehearse::TypedRehearse(CLI::App& parent) {
    CLI::App* rehearse = parent.add_subcommand(
        "rehearse", "Turn a few steps on a part of the model, and scale them to the whole");
    rehearse->add_option("what", words, what_help);
    add_part(*rehearse, command.block_count, command.step_count, "Steps that are measured");
    add_nvme(*rehearse, keys);
    add_machine(*rehearse, keys);
    rehearse->add_flag("--json", command.is_json, "Print one object");
}

CommandLine TypedRehearse::read() const {
    return command_on_one("rehearse", command, words, keys);
}

TypedTune::TypedTune(CLI::App& parent) {
    CLI::App* tune = parent.add_subcommand(
        "tune",
        "Measure the few placements that are predicted to be the fastest, and write a run "
        "file with the winner");
    tune->add_option("what", words, what_help);
    add_nvme(*tune, keys);
    add_machine(*tune, keys);
    add_part(*tune, command.block_count, command.step_count, "Steps of each measurement");
    tune->add_option("--rounds", command.round_count, "Of all candidates, interleaved")
        ->check(CLI::Range(2, 100))
        ->capture_default_str();
    tune->add_option("--candidates", command.candidate_count,
                     "Placements that are measured, the planner's among them")
        ->check(CLI::Range(2, 32))
        ->capture_default_str();
    tune->add_option("--out", command.out, "The run file to write [RUN.tuned.yaml, tuned.yaml]");
    tune->add_flag("--overwrite", command.is_overwriting, "Write it over one that is there");
    tune->add_flag("--json", command.is_json, "Print one object");
}

CommandLine TypedTune::read() const {
    return command_on_one("tune", command, words, keys);
}

TypedBenchStep::TypedBenchStep(CLI::App& bench) : ways(names_of_ways()) {
    CLI::App* step = bench.add_subcommand(
        "step",
        "Steps of a part of a model beside their longest lane, as planned and three other "
        "ways: many minutes");
    step->add_option("what", words, what_help);
    add_nvme(*step, keys);
    step->add_option("--emulate", keys.emulated_file, "A machine file whose card is pretended");
    add_machine(*step, keys);
    step->add_option("--batches", batches,
                     "Samples of a micro-batch x micro-batches of a step; a list")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    step->add_option("--ways", ways,
                     "As planned; gated: no update twice; serial: one op at a time; classic: a "
                     "micro-batch per pass, a layer in flight, no update twice")
        ->check(CLI::IsMember(names_of_ways()))
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    add_part(*step, command.block_count, command.step_count, "Steps of each measurement");
    step->add_option("--rounds", command.rounds, "Of all rows, interleaved; medians are shown")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    step->add_flag("--json", command.is_json, "Print one list of rows");
}

CommandLine TypedBenchStep::read() const {
    BenchStepCommand step = command;
    for (const std::string& text : batches) {
        const auto batch = batch_of(text);
        if (!batch) return refused(batch.error().text());
        step.batches.push_back(*batch);
    }
    CHECK_EQ(step.batches.size(), batches.size());
    for (const auto& [name, way] : named_ways) {
        if (std::ranges::find(ways, name) != ways.end()) step.ways.push_back(way);
    }
    return command_on_one("bench step", std::move(step), words, keys);
}

}  // namespace headrace::engine
