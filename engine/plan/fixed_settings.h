// A placement written down as settings: what the planner chose where the run file left it open,
// fixed by the keys of the run file, so that the same run placed again is placed the same. The keys
// of the numerics record are none of them: whatever is fixed, the bits are those of the run file
// without it.
#pragma once

#include <string_view>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/plan/placement.h"

namespace headrace::engine {

struct FixedSettings {
    RunConfig config;                    // as given, and fixed
    std::vector<std::string_view> keys;  // that were open and are fixed now
};

// `placement`: of that very configuration. Ceilings that were open become those it was placed
// under, since what is free differs from run to run.
FixedSettings fixed_settings(const RunConfig& config, const Placement& placement);

}  // namespace headrace::engine
