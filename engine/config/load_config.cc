#include "engine/config/load_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/checkpoint/file.h"
#include "engine/config/aliases.h"
#include "engine/config/keys.h"
#include "engine/config/names.h"
#include "engine/config/yaml_value.h"
#include "offload/check.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Tier;

namespace {

constexpr std::string_view command_line = "command line";
// A run file is a page; something much larger is a data file given by mistake.
constexpr uintmax_t run_file_bytes_max = 1024 * 1024;
// Far above any use, and low enough that no sum of a step's bytes can overflow.
constexpr double step_tokens_max = 0x1p36;

// One value as it was given, before its name is understood.
struct Setting {
    std::string name;  // dotted
    YamlValue value;
    std::string origin;  // "run.yaml:12" or "command line"
};

bool is_section(std::string_view name) {
    return name == "offload" || name == "offload.advanced" || name == "advanced";
}

// `fp16: true` is a switch; `fp16: {enabled: true, loss_scale: 0}` is DeepSpeed's section.
bool is_precision_section(const std::string& name, const YamlValue& value) {
    return (name == "fp16" || name == "bf16") && value.kind == YamlValue::Kind::map;
}

// The same of the optimizer, whose key here takes tiers.
bool is_optimizer_section(const std::string& name, const YamlValue& value) {
    if (name != "optimizer" || value.kind != YamlValue::Kind::map) return false;
    return std::ranges::any_of(
        value.keys, [](const std::string& key) { return key == "type" || key == "params"; });
}

bool is_optimizer(const std::string& name) {
    constexpr std::string_view words[] = {"adam", "lion", "sgd", "adafactor", "adagrad", "muon"};
    return std::ranges::any_of(
        words, [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

// Whether what stands below a name are settings of their own.
bool opens_section(const std::string& name, const YamlValue& value) {
    if (is_section(name)) return value.kind == YamlValue::Kind::map;
    return is_precision_section(name, value) || is_optimizer_section(name, value);
}

// `adapter:` and `adapter: ""` say nothing, as null does.
bool is_empty(const YamlValue& value) {
    return value.kind == YamlValue::Kind::null || value.is("");
}

// Reads settings into a RunConfig, one by one, collecting faults.
class Loader {
  public:
    LoadedConfig loaded;
    std::vector<std::string> faults;
    Drives drives = Drives::named;

    // Depth is bounded by the sections: offload.advanced.key is the deepest.
    void add_section(const YamlValue& section, const std::string& prefix, const std::string& file) {
        for (size_t i = 0; i < section.items.size(); ++i) {
            const YamlValue& value = section.items[i];
            const std::string name = prefix + section.keys[i];
            const std::string origin =
                file.empty() ? std::string(command_line) : fmt::format("{}:{}", file, value.line);
            if (opens_section(name, value)) {
                add_section(value, name + ".", file);
            } else if (!is_section(name)) {
                set({name, value, origin});
            } else if (value.kind != YamlValue::Kind::null) {
                fault(origin, name,
                      "must be a section with keys of its own, but is " + value.description());
            }
        }
    }

    void add_override(const std::string& text) {
        const size_t equals = text.find('=');
        if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
            faults.push_back(fmt::format("{}: '{}' must have the form key=value; key='' empties it",
                                         command_line, text));
            return;
        }
        const std::string value_text = text.substr(equals + 1);
        Result<ParsedYaml> parsed = parse_yaml(value_text, std::string(command_line));
        YamlValue value;
        if (parsed && parsed->faults.empty()) {
            value = std::move(parsed->root);
        } else {
            // What is no YAML can still be a text: a path with a colon or an asterisk.
            value.kind = YamlValue::Kind::scalar;
            value.text = value_text;
        }
        const std::string name = text.substr(0, equals);
        if (opens_section(name, value)) {
            add_section(value, name + ".", "");
        } else {
            set({name, value, std::string(command_line)});
        }
    }

    // What no single value can tell: defaults that follow other values, conflicts, what is missing.
    void finish();

  private:
    void fault(std::string_view origin, std::string_view name, std::string_view text) {
        faults.push_back(fmt::format("{}: {}: {}", origin, name, text));
    }
    bool is_given(std::string_view key) const { return loaded.origins.contains(std::string(key)); }
    void note(std::string text) {
        if (std::ranges::find(loaded.notes, text) == loaded.notes.end()) {
            loaded.notes.push_back(std::move(text));
        }
    }

    void set(const Setting& setting);
    void set_key(const Key& key, const Setting& setting);
    bool set_switch_alias(const Setting& setting);
    bool set_foreign(const Setting& setting);
    void refuse_unknown(const Setting& setting);
    void fill_defaults();
    void check_batch();
    void check_schedule();
    void check_loss_scale();
    void check_evaluation();
    void check_emulation();
    void check_keeping();
    void check_tiers();
    void check_commits();

    std::set<std::string> set_from_file_;
    bool has_bf16_off_ = false;
};

std::string_view without_offload(std::string_view name) {
    return name.starts_with("offload.") ? name.substr(8) : name;
}

// The key meant by its own name, by the name without its section, or by an alias. A name that
// stands in the offload section can only mean a key of that section.
const Key* key_meant(std::string_view name) {
    const bool is_in_offload = name.starts_with("offload.");
    const std::string_view bare = without_offload(name);
    const Key* key = find_key(name);
    if (key == nullptr) key = find_key(bare);
    for (const Alias& alias : all_aliases()) {
        if (key == nullptr && alias.name == bare) key = find_key(alias.key);
    }
    if (key != nullptr && is_in_offload && !key->name.starts_with("offload.")) return nullptr;
    return key;
}

void Loader::set(const Setting& setting) {
    CHECK(!setting.name.empty());
    if (set_switch_alias(setting)) return;
    // LLaMA-Factory, axolotl: `optimizer: adamw_torch` names an algorithm, not a tier.
    const bool is_algorithm = setting.name == "optimizer" && is_optimizer(setting.value.text);
    const Key* key = is_algorithm ? nullptr : key_meant(setting.name);
    if (key != nullptr) {
        set_key(*key, setting);
    } else if (!set_foreign(setting)) {
        refuse_unknown(setting);
    }
}

void Loader::set_key(const Key& key, const Setting& setting) {
    const std::string name(key.name);
    const RunConfig before = loaded.config;
    const std::string wrong = set_value(loaded.config, key, setting.value);
    if (!wrong.empty()) {
        const bool is_path = name == "resume_from_checkpoint";
        return fault(setting.origin, setting.name,
                     wrong + (is_path ? ": true goes on with the run in output_dir, where its "
                                        "store says how far it is; no folder is named"
                                      : ""));
    }
    const bool is_from_file = setting.origin != command_line;
    if (is_from_file && !set_from_file_.insert(name).second && loaded.config != before) {
        return fault(setting.origin, setting.name,
                     fmt::format("'{}' was given another value in {}", name, loaded.origins[name]));
    }
    loaded.origins[name] = setting.origin;
}

bool Loader::set_switch_alias(const Setting& setting) {
    for (const SwitchAlias& alias : all_switch_aliases()) {
        if (alias.name != setting.name) continue;
        const std::optional<bool> is_on = switch_in(setting.value);
        if (is_on == true) {
            Setting meant = setting;
            meant.value.text = alias.value;
            const Key* key = find_key(alias.key);
            CHECK(key != nullptr);
            set_key(*key, meant);
        } else if (is_on == false) {
            has_bf16_off_ |= setting.name.starts_with("bf16");
        } else if (!is_empty(setting.value) && !setting.value.is("auto")) {
            fault(setting.origin, setting.name,
                  "must be true or false, but is " + setting.value.description());
        }
        return true;
    }
    return false;
}

bool Loader::set_foreign(const Setting& setting) {
    const bool is_algorithm = setting.name == "optimizer";
    for (const ForeignSetting& foreign : all_foreign_settings()) {
        // `commit` is known as offload.commit, as keys of the section are.
        const bool is_named = foreign.name == setting.name ||
                              (foreign.name == "optim" && is_algorithm) ||
                              without_offload(foreign.name) == setting.name ||
                              setting.name.starts_with(std::string(foreign.name) + ".");
        if (!is_named) continue;
        if (is_empty(setting.value)) return true;
        CHECK(!foreign.refusal.empty() || foreign.accepted == "*");
        const std::optional<bool> is_on = switch_in(setting.value);
        const std::string_view word = is_on == true ? "true" : "false";
        if (accepts(foreign, setting.value.text) || (is_on && accepts(foreign, word))) {
            if (!foreign.note.empty()) note(fmt::format("{}: {}", setting.name, foreign.note));
        } else {
            fault(setting.origin, setting.name, foreign.refusal);
        }
        return true;
    }
    return false;
}

void Loader::refuse_unknown(const Setting& setting) {
    std::vector<std::string_view> candidates;
    for (const Key& key : all_keys()) {
        candidates.push_back(key.name);
        candidates.push_back(key.name.substr(key.name.rfind('.') + 1));
    }
    for (const Alias& alias : all_aliases()) candidates.push_back(alias.name);
    std::string_view meant = nearest_name(setting.name, candidates);
    // Of a name in a section that is none here, only a key that it is.
    const auto last = std::ranges::find(
        candidates, std::string_view(setting.name).substr(setting.name.rfind('.') + 1));
    if (meant.empty() && last != candidates.end()) meant = *last;
    fault(setting.origin, setting.name,
          meant.empty() ? std::string("unknown key; `headrace train --help` lists the keys")
                        : fmt::format("unknown key; did you mean '{}'?", meant));
}

void Loader::fill_defaults() {
    RunConfig& config = loaded.config;
    if (!is_given("output_dir") || config.output_dir.empty()) {
        std::filesystem::path model = config.model;
        if (!model.has_filename()) model = model.parent_path();
        config.output_dir = "runs/" + model.filename().string();
    }
    if (!is_given("per_device_eval_batch_size")) {
        config.per_device_eval_batch_size = config.per_device_train_batch_size;
    }
    if (has_bf16_off_ && !is_given("dtype")) {
        note("bf16: false leaves dtype at its default, which is bf16: dtype: fp32 is the other");
    }
    if (!is_given("offload.gradients")) config.offload.gradients = config.dtype;
}

void Loader::check_batch() {
    const RunConfig& config = loaded.config;
    const auto length = static_cast<double>(config.max_length);
    const double tokens = static_cast<double>(config.per_device_train_batch_size) *
                          static_cast<double>(config.gradient_accumulation_steps) * length;
    if (tokens > step_tokens_max) {
        faults.push_back(fmt::format(
            "per_device_train_batch_size ({}) x gradient_accumulation_steps ({}) x max_length ({}) "
            "are {:.2g} tokens a step; the most is {:.2g}",
            config.per_device_train_batch_size, config.gradient_accumulation_steps,
            config.max_length, tokens, step_tokens_max));
    }
    const double eval_tokens = static_cast<double>(config.per_device_eval_batch_size) * length;
    if (eval_tokens > step_tokens_max &&
        config.per_device_eval_batch_size != config.per_device_train_batch_size) {
        faults.push_back(fmt::format(
            "per_device_eval_batch_size ({}) x max_length ({}) are {:.2g} tokens; the most is "
            "{:.2g}",
            config.per_device_eval_batch_size, config.max_length, eval_tokens, step_tokens_max));
    }
}

void Loader::check_schedule() {
    RunConfig& config = loaded.config;
    if (config.max_steps && is_given("num_train_epochs")) {
        note(fmt::format("max_steps ({}) wins over num_train_epochs", *config.max_steps));
    }
    if (config.lr_scheduler_type == LrSchedule::constant) {  // a warm-up that was only a default
        if (config.warmup_steps.value_or(0) > 0 ||
            (is_given("warmup_ratio") && config.warmup_ratio > 0)) {
            note(
                "the warm-up has no effect: lr_scheduler_type constant has none, "
                "constant_with_warmup has one");
        }
        config.warmup_ratio = 0;
        config.warmup_steps.reset();
    }
    if (config.warmup_steps == 0) {
        // As in transformers: beside a ratio, the ratio was meant. Alone it is no warm-up, which a
        // resolved config, where every key stands, must say in another way.
        if (!is_given("warmup_ratio")) config.warmup_ratio = 0;
        config.warmup_steps.reset();
    }
    if (config.warmup_steps && is_given("warmup_ratio")) {
        note(fmt::format("warmup_steps ({}) wins over warmup_ratio", *config.warmup_steps));
    }
    if (config.max_steps && config.warmup_steps && *config.warmup_steps > *config.max_steps) {
        fault(loaded.origins["warmup_steps"], "warmup_steps",
              fmt::format("must be at most max_steps ({}), but is {}", *config.max_steps,
                          *config.warmup_steps));
    }
}

void Loader::check_loss_scale() {
    const RunConfig& config = loaded.config;
    const LossScaleRule& rule = config.loss_scale;
    for (const std::string_view key : {"loss_scale", "initial_scale_power", "loss_scale_window",
                                       "hysteresis", "consecutive_hysteresis", "min_loss_scale"}) {
        if (!is_given(key) || config.dtype == offload::Dtype::fp16) continue;
        note(fmt::format("{} has no effect: dtype is {}", key, name_of(config.dtype)));
    }
    if (config.offload.gradients == offload::Dtype::fp16 && config.dtype != offload::Dtype::fp16) {
        fault(
            loaded.origins["offload.gradients"], "offload.gradients",
            "fp16 needs dtype: fp16, whose loss is scaled: unscaled gradients would vanish in it");
    }
    if (rule.fixed_scale > 0 && rule.fixed_scale < 1e-30) {
        fault(loaded.origins["loss_scale"], "loss_scale",
              "must be 0 or at least 1e-30: fp32 has no inverse of less");
    }
    if (rule.fixed_scale == 0 && rule.min_scale > initial_loss_scale(rule).scale) {
        fault(is_given("min_loss_scale") ? loaded.origins["min_loss_scale"]
                                         : loaded.origins["initial_scale_power"],
              "min_loss_scale",
              fmt::format("must be at most 2 to the initial_scale_power ({:g}), but is {:g}",
                          initial_loss_scale(rule).scale, rule.min_scale));
    }
}

void Loader::check_evaluation() {
    const RunConfig& config = loaded.config;
    if (!config.eval_steps || !config.eval_data.empty()) return;
    fault(loaded.origins["eval_steps"], "eval_steps",
          "needs eval_data: name a JSONL of held-out samples, or remove eval_steps");
}

void Loader::check_emulation() {
    const RunConfig& config = loaded.config;
    if (config.emulate.empty()) return;
    if (config.device == Device::cuda) {
        fault(loaded.origins["emulate"], "emulate",
              "pretends a card on device: host; device: cuda has one");
    }
    if (config.resume_from_checkpoint) {
        fault(loaded.origins["emulate"], "emulate",
              "cannot be together with resume_from_checkpoint: an emulated run computes nothing, "
              "so there is no training to go on with");
    }
}

void Loader::check_keeping() {
    const RunConfig& config = loaded.config;
    if (!config.gradient_checkpointing) return;
    const AdvancedConfig& advanced = config.offload.advanced;
    const std::pair<std::string_view, bool> counts[] = {
        {"offload.advanced.blocks_kept_on_gpu", advanced.blocks_kept_on_gpu.has_value()},
        {"offload.advanced.blocks_kept_in_ram", advanced.blocks_kept_in_ram.has_value()},
        {"offload.advanced.blocks_kept_on_nvme", advanced.blocks_kept_on_nvme.has_value()}};
    for (const auto& [key, is_a_number] : counts) {
        if (!is_a_number) continue;
        fault(loaded.origins[std::string(key)], key,
              fmt::format("cannot be together with gradient_checkpointing ({}), which says it of "
                          "all blocks",
                          *config.gradient_checkpointing));
    }
}

void Loader::check_tiers() {
    const OffloadConfig& offload = loaded.config.offload;
    if (drives == Drives::of_machine || !offload.nvme_paths.empty()) return;
    const auto is_on_nvme = [](const std::optional<TierShares>& shares) {
        return shares && shares->share(Tier::nvme) > 0;
    };
    std::vector<std::string_view> users;
    if (is_on_nvme(offload.parameters)) users.push_back("offload.parameters");
    if (is_on_nvme(offload.optimizer)) users.push_back("offload.optimizer");
    if (is_on_nvme(offload.activations)) users.push_back("offload.activations");
    if (is_on_nvme(offload.advanced.stash_tier)) users.push_back("offload.advanced.stash_tier");
    if (offload.advanced.accumulator_tier == Tier::nvme) {
        users.push_back("offload.advanced.accumulator_tier");
    }
    if (offload.advanced.blocks_kept_on_nvme.value_or(0) > 0) {
        users.push_back("offload.advanced.blocks_kept_on_nvme");
    }
    if (offload.nvme_budget_bytes) users.push_back("offload.nvme_budget");
    if (users.empty()) return;
    faults.push_back(
        fmt::format("offload.nvme_paths is missing: {} ({}) {} a folder on a drive, such as "
                    "nvme_paths: [/mnt/nvme0]",
                    fmt::join(users, ", "), loaded.origins[std::string(users.front())],
                    users.size() == 1 ? "needs" : "need"));
}

void Loader::check_commits() {
    const RunConfig& config = loaded.config;
    if (config.resume_from_checkpoint && config.overwrite_output_dir) {
        fault(loaded.origins["overwrite_output_dir"], "overwrite_output_dir",
              "cannot be together with resume_from_checkpoint: one throws away what the other "
              "goes on with");
    }
    const std::pair<std::string_view, bool> of_resumes[] = {
        {"convert_optimizer_states", config.convert_optimizer_states},
        {"allow_other_numerics", config.allow_other_numerics}};
    for (const auto& [name, is_used] : of_resumes) {
        if (!is_used || config.resume_from_checkpoint) continue;
        note(fmt::format("{} has no effect: this start does not resume", name));
    }
    if (config.save_steps && config.offload.commit == CommitMode::every_step) {
        note("save_steps has no effect: commit: every_step commits every step");
    }
    if (drives == Drives::of_machine || !config.offload.nvme_paths.empty()) return;
    const std::pair<std::string_view, bool> users[] = {
        {"save_steps", config.save_steps.has_value()},
        {"resume_from_checkpoint", config.resume_from_checkpoint},
        {"offload.commit", config.offload.commit != CommitMode::automatic},
        {"offload.nvme_write_limit", config.offload.nvme_write_limit_bytes.has_value()},
        {"offload.nvme_max_write", config.offload.nvme_max_write_bytes.has_value()}};
    for (const auto& [name, is_used] : users) {
        if (!is_used) continue;
        fault(loaded.origins[std::string(name)], std::string(name),
              "needs nvme_paths: the folders of the run's store, also where states live in memory");
    }
}

void Loader::finish() {
    const RunConfig& config = loaded.config;
    const std::pair<std::string_view, const std::string&> required[] = {
        {"model", config.model}, {"train_data", config.train_data}};
    for (const auto& [name, value] : required) {
        if (value.empty()) faults.push_back(fmt::format("{} is missing: it has no default", name));
    }
    fill_defaults();
    check_batch();
    check_schedule();
    check_loss_scale();
    check_evaluation();
    check_emulation();
    check_keeping();
    check_tiers();
    check_commits();
}

std::string list_of(const std::vector<std::string>& faults) {
    CHECK(!faults.empty());
    if (faults.size() == 1) return faults.front();
    return fmt::format("{} faults:\n  {}", faults.size(), fmt::join(faults, "\n  "));
}

}  // namespace

Result<LoadedConfig> parse_config(const ConfigText& text) {
    Loader loader;
    loader.drives = text.drives;
    const Result<ParsedYaml> parsed = parse_yaml(text.yaml, text.file_name);
    if (!parsed) return parsed.error();
    for (const std::string& fault : parsed->faults) {
        loader.faults.push_back(fmt::format("{}: {}", text.file_name, fault));
    }
    if (parsed->root.kind != YamlValue::Kind::map && parsed->root.kind != YamlValue::Kind::null) {
        return Error{ErrorCode::usage,
                     fmt::format("{} must hold keys and values, such as 'model: models/llama', but "
                                 "it is {}",
                                 text.file_name, parsed->root.description()),
                     ""};
    }
    loader.add_section(parsed->root, "", text.file_name);
    for (const std::string& given : text.overrides) loader.add_override(given);
    loader.finish();
    if (!loader.faults.empty()) {
        return Error{ErrorCode::usage, "cannot use this configuration", list_of(loader.faults)};
    }
    CHECK(!loader.loaded.config.model.empty());
    CHECK(!loader.loaded.config.output_dir.empty());
    return std::move(loader.loaded);
}

Result<LoadedConfig> load_config(const std::string& path, std::vector<std::string> overrides,
                                 Drives drives) {
    ConfigText text{
        .yaml = "", .file_name = "run.yaml", .overrides = std::move(overrides), .drives = drives};
    if (path.empty()) return parse_config(text);
    text.file_name = path;
    std::error_code failure;
    if (std::filesystem::is_directory(path, failure)) {
        return Error{ErrorCode::usage, fmt::format("cannot read the run file '{}'", path),
                     "it is a folder; if it is a model, name its data too: MODEL DATA"};
    }
    const uintmax_t size_bytes = std::filesystem::file_size(path, failure);
    if (failure) {
        return Error{ErrorCode::usage, fmt::format("cannot read the run file '{}'", path),
                     failure.message() + "; headrace init MODEL DATA > run.yaml makes one"};
    }
    if (size_bytes > run_file_bytes_max) {
        return Error{ErrorCode::usage,
                     fmt::format("'{}' has {} bytes, too many for a run file; is it the data?",
                                 path, size_bytes),
                     ""};
    }
    Result<std::string> yaml = read_text(path, run_file_bytes_max);
    if (!yaml) {
        return Error{ErrorCode::usage, fmt::format("cannot read the run file '{}'", path),
                     yaml.error().text()};
    }
    text.yaml = std::move(*yaml);
    return parse_config(text);
}

}  // namespace headrace::engine
