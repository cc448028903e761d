// The shape of what people call a model: a config.json by its own name, a model's folder, or a name
// in the hub cache; of any architecture that a plan can be made for.
#pragma once

#include <string>

#include "engine/cli/environment.h"
#include "engine/models/shape.h"
#include "offload/result.h"

namespace headrace::engine {

// Error: bad_data, usage as of find_model.
offload::Result<Shape> read_shape(const std::string& model, const Environment& environment);

}  // namespace headrace::engine
