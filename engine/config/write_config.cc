// The ways a configuration is shown: config.resolved.yaml, `headrace init`, the list of keys.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/config/keys.h"
#include "engine/config/load_config.h"
#include "engine/config/yaml_value.h"
#include "offload/check.h"

namespace headrace::engine {

namespace {

// Writes `name: value  # comment` lines, opening the sections that dotted names need.
class YamlWriter {
  public:
    std::string text;

    void add(std::string_view name, std::string_view value, std::string_view comment) {
        const size_t dot = name.rfind('.');
        const std::string_view section = dot == std::string_view::npos ? "" : name.substr(0, dot);
        if (section != section_) open(section);
        const std::string entry = fmt::format("{}{}: {}", indent(), name.substr(dot + 1), value);
        text += fmt::format("{:<48}  # {}\n", entry, comment);
    }

  private:
    void open(std::string_view section) {
        CHECK(section.starts_with(section_));  // sections are opened from the outside in
        const size_t dot = section.rfind('.');
        if (dot != std::string_view::npos && section_.empty()) open(section.substr(0, dot));
        section_ = section;
        text += fmt::format("{}{}:\n", indent().substr(2), section.substr(dot + 1));
    }
    std::string indent() const {
        if (section_.empty()) return "";
        return section_.find('.') == std::string_view::npos ? "  " : "    ";
    }
    std::string_view section_;
};

constexpr std::array<std::string_view, 23> initial_keys = {
    "model",
    "train_data",
    "eval_data",
    "output_dir",
    "dtype",
    "max_length",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "num_train_epochs",
    "max_steps",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_ratio",
    "max_grad_norm",
    "seed",
    "eval_steps",
    "save_steps",
    "offload.gpu_budget",
    "offload.ram_budget",
    "offload.parameters",
    "offload.optimizer",
    "offload.optimizer_states",
};

// What one start was allowed, the next one must be allowed again.
RunConfig without_permissions(RunConfig config) {
    config.overwrite_output_dir = false;
    config.convert_optimizer_states = false;
    config.allow_other_numerics = false;
    return config;
}

}  // namespace

std::string resolved_yaml(const LoadedConfig& loaded) {
    YamlWriter writer;
    writer.text =
        "# Every setting of this run, and where it came from. `headrace train` reads it.\n";
    const RunConfig kept = without_permissions(loaded.config);
    for (const Key& key : all_keys()) {
        const auto origin = loaded.origins.find(std::string(key.name));
        const std::string value = text_of_value(kept, key);
        std::string comment = origin == loaded.origins.end() ? "default" : origin->second;
        if (value != text_of_value(loaded.config, key)) {
            comment += ", to one start: it is not given to the next";
        }
        writer.add(key.name, value, comment);
    }
    return writer.text;
}

std::string given_yaml(const LoadedConfig& loaded, const std::vector<std::string>& head) {
    YamlWriter writer;
    for (const std::string& line : head) writer.text += "# " + line + "\n";
    for (const Key& key : all_keys()) {
        const auto origin = loaded.origins.find(std::string(key.name));
        if (origin == loaded.origins.end()) continue;
        writer.add(key.name, text_of_value(loaded.config, key), origin->second);
    }
    return writer.text;
}

std::string initial_yaml(std::string_view model, std::string_view train_data,
                         std::optional<int64_t> max_positions) {
    CHECK(!model.empty());
    CHECK(!train_data.empty());
    CHECK(!max_positions || *max_positions >= 1);
    // Through the parser, so that the defaults shown are the defaults used.
    auto loaded =
        parse_config({.yaml = "",
                      .overrides = {"model=" + yaml_quoted(std::string(model)),
                                    "train_data=" + yaml_quoted(std::string(train_data))}});
    CHECK(loaded.ok());
    int64_t& max_length = loaded->config.max_length;
    max_length = std::min(max_length, max_positions.value_or(max_length));
    YamlWriter writer;
    writer.text = "# headrace train run.yaml [key=value ...]\n";
    for (const std::string_view name : initial_keys) {
        const Key* key = find_key(name);
        CHECK(key != nullptr);
        writer.add(name, text_of_value(loaded->config, *key), key->help);
    }
    writer.text +=
        "  # nvme_paths: [/mnt/nvme0]                   # folders on the drives to use, one per "
        "drive\n# The other keys: headrace train --help\n";
    return writer.text;
}

std::vector<std::pair<std::string, std::string>> config_keys() {
    std::vector<std::pair<std::string, std::string>> keys;
    for (const Key& key : all_keys()) keys.emplace_back(key.name, key.help);
    return keys;
}

}  // namespace headrace::engine
