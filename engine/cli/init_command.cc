#include <optional>

#include "engine/cli/commands.h"
#include "engine/cli/run_inputs.h"
#include "engine/config/load_config.h"

namespace headrace::engine {

offload::Status run_command(const InitCommand& command, const CommandContext& context) {
    if (command.model.empty() || command.data.empty()) {
        return offload::Error{offload::ErrorCode::usage, "init needs a model and a data file", ""};
    }
    // A model that is not here yet gets a run file, too.
    const auto model = read_model_shape(command.model, context.environment);
    return context.terminal.print(
        initial_yaml(command.model, command.data,
                     model ? std::optional<int64_t>(model->config.max_positions) : std::nullopt));
}

}  // namespace headrace::engine
