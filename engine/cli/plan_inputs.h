// What plan and rehearse are told: a run file as train takes it, or a model alone, which may be no
// more than a config.json.
#pragma once

#include <string>
#include <vector>

#include "engine/config/load_config.h"
#include "offload/result.h"

namespace headrace::engine {

// `what`: a run file, or a model; a model alone names no data. Error: usage.
offload::Result<LoadedConfig> read_plan_settings(const std::string& what,
                                                 const std::vector<std::string>& overrides,
                                                 Drives drives = Drives::named);
bool names_no_data(const RunConfig& config);

}  // namespace headrace::engine
