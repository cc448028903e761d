#include "engine/cli/commands.h"
#include "engine/cli/rehearsal_source.h"

namespace headrace::engine {

using offload::Result;

offload::Status run_command(const RehearseCommand& command, const CommandContext& context) {
    const Result<RehearsalSource> source =
        read_rehearsal(command.what, command.overrides, context.environment);
    if (!source) return source.error();
    const auto inputs = rehearsal_inputs(
        *source, source->loaded.config,
        {.block_count = command.block_count, .step_count = command.step_count}, context);
    if (!inputs) return inputs.error();
    const Notes notes = command.is_json ? Notes::kept_back : Notes::said;
    const Result<Rehearsal> rehearsal = rehearse(*inputs, rehearsal_reporter(notes, context));
    if (!rehearsal) return rehearsal.error();
    if (command.is_json) return context.terminal.print(json_of(*rehearsal));
    std::string text;
    for (const std::string& line : describe(*rehearsal)) text += line + "\n";
    return context.terminal.print(text);
}

}  // namespace headrace::engine
