#include "engine/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <span>

#include "engine/cli/typed_bench.h"
#include "engine/cli/typed_plainly.h"
#include "engine/cli/typed_run.h"
#include "engine/config/names.h"
#include "offload/check.h"

namespace headrace::engine {

namespace {

// All commands, in the order in which help shows them.
struct Typed {
    explicit Typed(CLI::App& app)
        : train(app),
          plan(app),
          rehearse(app),
          tune(app),
          to_export(app),
          doctor(app),
          bench(app),
          init(app),
          store(app),
          random_model(app) {}

    CommandLine read(std::string_view name) const {
        if (name == "train") return train.read();
        if (name == "plan") return plan.read();
        if (name == "rehearse") return rehearse.read();
        if (name == "tune") return tune.read();
        if (name == "export") return to_export.read();
        if (name == "doctor") return doctor.read();
        if (name == "bench") return bench.read();
        if (name == "init") return init.read();
        if (name == "store") return store.read();
        CHECK_EQ(name, "random-model");
        return random_model.read();
    }

    TypedTrain train;
    TypedPlan plan;
    TypedRehearse rehearse;
    TypedTune tune;
    TypedExport to_export;
    TypedDoctor doctor;
    TypedBench bench;
    TypedInit init;
    TypedStore store;
    TypedRandomModel random_model;
};

// A setting written as an option is the commonest slip of people who come from other trainers.
std::string explained(const CLI::ParseError& fault) {
    const std::string text = fault.what();
    const size_t dashes = text.find("--");
    if (dashes == std::string::npos ||
        fault.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError))
        return text;
    return text + "\nSettings are given as key=value, without dashes: learning_rate=1e-5";
}

// CLI11 says only that a command is missing; people want to know which word was not understood.
std::optional<Exit> unknown_command(std::span<const std::string> arguments, const CLI::App& app) {
    if (arguments.empty() || arguments[0].starts_with('-')) return std::nullopt;
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands(nullptr))
        names.push_back(command->get_name());
    CHECK(!names.empty());
    if (std::ranges::find(names, arguments[0]) != names.end()) {
        const CLI::App& command = *app.get_subcommand(arguments[0]);
        if (command.get_subcommands(nullptr).empty()) return std::nullopt;
        return unknown_command(arguments.subspan(1), command);
    }
    const std::vector<std::string_view> candidates(names.begin(), names.end());
    const std::string_view meant = nearest_name(arguments[0], candidates);
    if (meant.empty()) {
        return refused(fmt::format("'{}' is no command; the commands are {}", arguments[0],
                                   fmt::join(names, ", ")));
    }
    return refused(fmt::format("'{}' is no command; did you mean '{}'?", arguments[0], meant));
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
    CLI::App app(
        "Headrace fine-tunes models that do not fit: weights and states wait in RAM and on NVMe.",
        "headrace");
    app.set_version_flag("--version", "headrace " HEADRACE_VERSION);
    app.require_subcommand(1);
    app.footer(std::string("\nheadrace COMMAND --help says more.\n") + exit_codes);
    Typed typed(app);  // filled in by app.parse
    if (const std::optional<Exit> unknown = unknown_command(arguments, app)) return *unknown;
    try {
        std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
        app.parse(reversed);
    } catch (const CLI::CallForVersion& call) {
        return Exit{.code = 0, .text = std::string(call.what()) + "\n"};
    } catch (const CLI::Success&) {  // --help
        return Exit{.code = 0, .text = app.help()};
    } catch (const CLI::ParseError& fault) {
        return refused(explained(fault));
    }
    return typed.read(name_of_command(app));
}

}  // namespace headrace::engine
