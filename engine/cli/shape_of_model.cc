#include "engine/cli/shape_of_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/checkpoint/find_model.h"

namespace headrace::engine {

offload::Result<Shape> read_shape(const std::string& model, const Environment& environment) {
    std::string path = model;
    if (std::filesystem::path(model).extension() != ".json") {
        const offload::Result<std::string> folder = find_model(model, environment.hub_cache);
        if (!folder) return folder.error();
        path = (std::filesystem::path(*folder) / "config.json").string();
    }
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
        return offload::Error{offload::ErrorCode::bad_data, fmt::format("cannot read '{}'", path),
                              "it must be a model's config.json, or the model's folder"};
    }
    return parse_shape(text, path);
}

}  // namespace headrace::engine
