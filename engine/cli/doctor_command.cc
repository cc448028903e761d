#include <iterator>

#include "engine/cli/commands.h"
#include "engine/cli/doctor.h"

namespace headrace::engine {

offload::Status run_command(const DoctorCommand& command, const CommandContext& context) {
    std::vector<DoctorRow> rows = rows_of(read_machine());
    const auto append = [&rows](std::vector<DoctorRow> more) {
        rows.insert(rows.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
    };
    append(rows_of_drives(command.nvme_paths.empty() ? std::vector<std::string>{"."}
                                                     : command.nvme_paths));
    append(rows_of_software(context.environment));
    rows.push_back(row_of_rates(context.environment));
    return context.terminal.print(table_of(rows));
}

}  // namespace headrace::engine
