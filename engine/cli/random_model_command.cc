#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/checkpoint/find_model.h"
#include "engine/checkpoint/random_checkpoint.h"
#include "engine/cli/commands.h"

namespace headrace::engine {

offload::Status run_command(const RandomModelCommand& command, const CommandContext& context) {
    std::string path = command.shape;
    if (std::filesystem::path(path).extension() != ".json") {
        const auto folder = find_model(path, context.environment.hub_cache);
        if (!folder) return folder.error();
        path = (std::filesystem::path(*folder) / "config.json").string();
    }
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
        return offload::Error{offload::ErrorCode::bad_data, "cannot read '" + path + "'",
                              "it must be a config.json, or the folder of a model"};
    }
    const offload::Status status = write_random_checkpoint(
        {.config_text = text,
         .source = path,
         .target_folder = command.target_folder,
         .block_count = command.block_count,
         .seed = command.seed,
         .is_recipe = command.is_recipe,
         .stop_signal = context.stop_signal,
         .say = [&context](const std::string& line) { context.terminal.say(line); }});
    if (!status) return status;
    return context.terminal.print(
        (command.is_recipe ? "a recipe for random weights of " : "random weights of ") + path +
        (command.is_recipe ? " is in " : " are in ") + command.target_folder + "\n");
}

}  // namespace headrace::engine
