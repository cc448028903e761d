#include "engine/checkpoint/random_checkpoint.h"
#include "engine/cli/commands.h"
#include "engine/cli/shape_of_model.h"

namespace headrace::engine {

offload::Status run_command(const RandomModelCommand& command, const CommandContext& context) {
    const offload::Result<ConfigJson> config = read_config_json(command.shape, context.environment);
    if (!config) return config.error();
    const offload::Status status = write_random_checkpoint(
        {.config_text = config->text,
         .source = config->path,
         .target_folder = command.target_folder,
         .block_count = command.block_count,
         .seed = command.seed,
         .is_recipe = command.is_recipe,
         .stop_signal = context.stop_signal,
         .say = [&context](const std::string& line) { context.terminal.say(line); }});
    if (!status) return status;
    return context.terminal.print(
        (command.is_recipe ? "a recipe for random weights of " : "random weights of ") +
        config->path + (command.is_recipe ? " is in " : " are in ") + command.target_folder + "\n");
}

}  // namespace headrace::engine
