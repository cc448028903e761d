// From what a user typed to a RunConfig: a YAML run file, `key=value` overrides, defaults; in that
// order of precedence from weak to strong: default, file, override.
//
// Strict: a duplicate key, an unknown key (told with the nearest name), a wrong type, a number out
// of range, a conflict or a missing field is a fault, and ONE error lists all faults, each with its
// file and line or override. Names of other trainers (cutoff_len, micro_batch_size, `bf16: true`)
// come from one table (engine/config/aliases.h); settings that are always so here
// (flash_attn, attn_implementation) are accepted with a note. Keys of the `offload` section are
// also known without its name (`ram_budget=2GiB`), and dotted (`offload.advanced.part_bytes`).
//
// Nothing is created, opened for writing or allocated here. Relative paths stay relative to the
// working directory.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config/run_config.h"
#include "offload/result.h"

namespace headrace::engine {

struct LoadedConfig {
    RunConfig config;
    // Where each given value came from, by dotted key: "run.yaml:12", "command line". A key that
    // is absent has its default.
    std::map<std::string, std::string> origins;
    std::vector<std::string> notes;  // one line each, to be shown once at start
};

// Whose drives a run is to use: folders that it names, or, of a plan for another machine, those of
// that machine, which need no name.
enum class Drives : uint8_t { named, of_machine };

// What was typed. Later overrides win over earlier ones; a bare `key=` is an error.
struct ConfigText {
    std::string yaml = {};                    // text of the run file; empty: none
    std::string file_name = "run.yaml";       // for messages
    std::vector<std::string> overrides = {};  // "key=value", values are YAML
    Drives drives = Drives::named;
};

// Error: usage, listing every fault.
offload::Result<LoadedConfig> parse_config(const ConfigText& text);

// Reads `path` ("": no run file), then as parse_config.
offload::Result<LoadedConfig> load_config(const std::string& path,
                                          std::vector<std::string> overrides,
                                          Drives drives = Drives::named);

// The text of config.resolved.yaml: a run file that gives the same RunConfig, every key present,
// every value with a comment of its origin. But what one start was allowed (overwrite_output_dir,
// convert_optimizer_states, allow_other_numerics) it does not allow the next.
std::string resolved_yaml(const LoadedConfig& loaded);

// A run file with the settings that were given alone, each with its origin, after `head`, lines of
// comment: parse_config makes the same RunConfig of it.
std::string given_yaml(const LoadedConfig& loaded, const std::vector<std::string>& head);

// The text that `headrace init` prints: a run file for model and data with the keys most people
// change, each with its default and a comment; parse_config accepts it as it is. max_length is
// lowered to the model's positions where these are known.
std::string initial_yaml(std::string_view model, std::string_view train_data,
                         std::optional<int64_t> max_positions = {});

// "key" and "what it means", for every key in the order of the run file; for --help.
std::vector<std::pair<std::string, std::string>> config_keys();

}  // namespace headrace::engine
