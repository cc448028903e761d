#include "engine/cli/plan_inputs.h"

#include <filesystem>

#include "engine/config/yaml_value.h"

namespace headrace::engine {

using offload::Result;

namespace {

// A plan reads no data; the run file may name some, and a model alone names none.
constexpr std::string_view no_data = "(none is read by a plan)";

}  // namespace

Result<LoadedConfig> read_plan_settings(const std::string& what,
                                        const std::vector<std::string>& overrides, Drives drives) {
    const std::string extension = std::filesystem::path(what).extension();
    if (extension == ".yaml" || extension == ".yml") return load_config(what, overrides, drives);
    std::vector<std::string> all = {"model=" + yaml_quoted(what),
                                    "train_data=" + yaml_quoted(std::string(no_data))};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return load_config("", all, drives);
}

bool names_no_data(const RunConfig& config) {
    return config.train_data == no_data;
}

}  // namespace headrace::engine
