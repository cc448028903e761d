#include "engine/cli/typed.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "engine/config/yaml_value.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::engine {

using offload::Result;

namespace {

// "key=value": a key is a word of letters, digits, underscores and dots.
bool is_override(const std::string& word) {
    const size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos) return false;
    return std::all_of(
        word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
        [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-'; });
}

}  // namespace

Exit refused(const std::string& why) {
    return {.code = 2, .text = fmt::format("{}\nTry: headrace --help\n", why)};
}

std::string name_of_command(const CLI::App& parent) {
    CHECK_EQ(parent.get_subcommands().size(), 1u);
    return parent.get_subcommands().front()->get_name();
}

Words split(const std::vector<std::string>& words) {
    Words found;
    for (const std::string& word : words) {
        (is_override(word) ? found.overrides : found.places).push_back(word);
    }
    return found;
}

void KeyOptions::add_to(std::vector<std::string>& overrides) const {
    const auto put_first = [&](std::string_view key, const std::string& value) {
        if (!value.empty()) {
            overrides.insert(overrides.begin(), fmt::format("{}={}", key, yaml_quoted(value)));
        }
    };
    put_first("machine", machine_file);
    put_first("emulate", emulated_file);
    if (nvme_paths.empty()) return;
    std::vector<std::string> quoted;
    for (const std::string& path : nvme_paths) quoted.push_back(yaml_quoted(path));
    overrides.push_back(fmt::format("offload.nvme_paths=[{}]", fmt::join(quoted, ", ")));
}

void add_nvme(CLI::App& command, KeyOptions& keys) {
    command.add_option("--nvme", keys.nvme_paths, "A folder on a drive to use; once per drive")
        ->allow_extra_args(false);
}

void add_machine(CLI::App& command, KeyOptions& keys) {
    command.add_option("--machine", keys.machine_file,
                       "A machine file: rates to choose a placement by [this one's, as doctor "
                       "--probe measured them]");
}

void add_part(CLI::App& command, int64_t& block_count, int64_t& step_count,
              const std::string& help_of_steps) {
    block_count = 0;
    command
        .add_option("--layers", block_count,
                    "Blocks of the part [3, or all that a smaller model has]")
        ->check(CLI::Range(1, 1024));
    command.add_option("--steps", step_count, help_of_steps)
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
}

CLI::Option* within(CLI::Option* option, double least, double most) {
    CHECK_LT(least, most);
    return option->check(CLI::Validator(
        [least, most](std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (is_number && value >= least && value <= most) return std::string();
            return fmt::format("Value {} not in range {} to {}", text, least, most);
        },
        fmt::format("FLOAT in [{} - {}]", least, most)));
}

void add_rounds(CLI::App& bench, uint32_t& rounds, double& seconds_min, bool& is_json) {
    bench.add_option("--rounds", rounds, "Of all rows, interleaved; medians are shown")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    within(bench.add_option("--seconds", seconds_min, "Of each measurement, at least"), 0, 3600)
        ->capture_default_str();
    bench.add_flag("--json", is_json, "Print one list of rows");
}

Result<uint64_t> size_of(const std::string& option, const std::string& text, uint64_t least,
                         uint64_t unit) {
    CHECK_GT(unit, 0u);
    const Result<uint64_t> size_bytes = offload::parse_bytes(text);
    if (!size_bytes) return wrap(size_bytes.error(), option);
    if (*size_bytes >= least && *size_bytes % unit == 0) return size_bytes;
    std::string bounds = "at least " + offload::format_bytes(least);
    if (unit > 1) bounds += fmt::format(", a multiple of {} bytes", unit);
    return offload::Error{offload::ErrorCode::usage, fmt::format("{} {}: {}", option, text, bounds),
                          ""};
}

}  // namespace headrace::engine
