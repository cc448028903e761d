// The shape of what people call a model: a config.json by its own name, a model's folder, or a name
// in the hub cache; of any architecture that a plan can be made for.
#pragma once

#include <string>

#include "engine/cli/environment.h"
#include "engine/models/shape.h"
#include "offload/result.h"

namespace headrace::engine {

// The config.json that is meant, and what stands in it.
struct ConfigJson {
    std::string path;
    std::string text;
};

// Error: bad_data, usage as of find_model.
offload::Result<ConfigJson> read_config_json(const std::string& model,
                                             const Environment& environment);

// Error: as of read_config_json; bad_data where it is no shape.
offload::Result<Shape> read_shape(const std::string& model, const Environment& environment);

}  // namespace headrace::engine
