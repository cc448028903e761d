#include "engine/cli/commands.h"
#include "engine/config/load_config.h"

namespace headrace::engine {

offload::Status run_command(const InitCommand& command, const CommandContext& context) {
    if (command.model.empty() || command.data.empty()) {
        return offload::Error{offload::ErrorCode::usage, "init needs a model and a data file", ""};
    }
    context.terminal.print(initial_yaml(command.model, command.data));
    return {};
}

}  // namespace headrace::engine
