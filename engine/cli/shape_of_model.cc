#include "engine/cli/shape_of_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "engine/checkpoint/file.h"
#include "engine/checkpoint/find_model.h"
#include "offload/units.h"

namespace headrace::engine {

namespace {

constexpr uint64_t config_json_bytes_max = 16 * offload::mib;

}  // namespace

offload::Result<ConfigJson> read_config_json(const std::string& model,
                                             const Environment& environment) {
    std::string path = model;
    std::error_code ignored;
    if (std::filesystem::path(model).extension() != ".json" ||
        std::filesystem::is_directory(model, ignored)) {
        const offload::Result<std::string> folder = find_model(model, environment.hub_cache);
        if (!folder) return folder.error();
        path = (std::filesystem::path(*folder) / "config.json").string();
    }
    offload::Result<std::string> text = read_text(path, config_json_bytes_max);
    if (!text) {
        return offload::Error{offload::ErrorCode::bad_data,
                              fmt::format("cannot read the model's config.json '{}'", path),
                              text.error().text()};
    }
    return ConfigJson{.path = std::move(path), .text = std::move(*text)};
}

offload::Result<Shape> read_shape(const std::string& model, const Environment& environment) {
    const offload::Result<ConfigJson> config = read_config_json(model, environment);
    if (!config) return config.error();
    return parse_shape(config->text, config->path);
}

}  // namespace headrace::engine
