#include <fmt/format.h>

#include "engine/cli/commands.h"
#include "engine/cli/probe_machine.h"

namespace headrace::engine {

offload::Status probe_machine(const DoctorCommand& command, const CommandContext& context) {
    const std::string path =
        command.out.empty() ? context.environment.measured_machine : command.out;
    if (path.empty()) {
        return offload::Error{offload::ErrorCode::usage,
                              "there is no home folder to keep the measured rates in",
                              "name a file with --out"};
    }
    const offload::Result<MeasuredMachine> measured = measure_and_keep(
        command, context, [&context](const std::string& line) { context.terminal.say(line); });
    if (!measured) return measured.error();
    return context.terminal.print(yaml_of(*measured) + fmt::format("# kept in {}\n", path));
}

}  // namespace headrace::engine
