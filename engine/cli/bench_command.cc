#include <fmt/format.h>

#include <ctime>

#include "engine/cli/bench_adam.h"
#include "engine/cli/bench_link.h"
#include "engine/cli/bench_nvme.h"
#include "engine/cli/commands.h"
#include "engine/cli/run_inputs.h"
#include "engine/config/cores.h"
#include "engine/config/machine.h"
#include "nvme/drive.h"
#include "offload/units.h"

namespace headrace::engine {

namespace {

template <typename Group>
std::vector<BenchRow> rows_of(const std::vector<Group>& groups) {
    std::vector<BenchRow> rows;
    for (const Group& group : groups) {
        rows.insert(rows.end(), group.rows.begin(), group.rows.end());
    }
    return rows;
}

}  // namespace

offload::Status run_command(const BenchNvmeCommand& command, const CommandContext& context) {
    const NvmeBenchContext surroundings{
        .drive_cache = context.environment.drive_cache,
        .now_unix_s = std::time(nullptr),
        .should_stop = [&context] { return context.stop_signal() != 0; },
        .say = context.say_unless(command.is_json),
        .on_stuck = context.leave_when_stuck()};
    // Before gigabytes are written to the first of them.
    if (offload::Status status = check_nvme_paths(command.paths); !status) return status;
    const auto groups = bench_nvme(command, surroundings);
    if (!groups) return groups.error();
    if (!command.is_json) {
        return context.terminal.print(
            text_of(*groups) +
            fmt::format("Medians of {} interleaved rounds; mixed is {} bytes read to {} written, "
                        "as in a step.\n",
                        command.rounds, nvme::step_read_bytes_per_parameter,
                        nvme::step_write_bytes_per_parameter));
    }
    return context.terminal.print(json_of(rows_of(*groups)));
}

offload::Status run_command(const BenchAdamCommand& command, const CommandContext& context) {
    AdamBenchContext surroundings{.core_count = static_cast<uint32_t>(usable_core_count()),
                                  .free_bytes = read_machine().ram_free_bytes(),
                                  .should_stop = [&context] { return context.stop_signal() != 0; }};
    surroundings.say = context.say_unless(command.is_json);
    const auto groups = bench_adam(command, surroundings);
    if (!groups) return groups.error();
    if (command.is_json) return context.terminal.print(json_of(rows_of(*groups)));
    return context.terminal.print(
        text_of(*groups) +
        fmt::format("Medians of {} interleaved rounds; each is held against the best stream of its "
                    "table.\n",
                    command.rounds));
}

offload::Status run_command(const BenchLinkCommand& command, const CommandContext& context) {
    LinkBenchContext surroundings{.core_count = static_cast<uint32_t>(usable_core_count()),
                                  .free_bytes = read_machine().ram_free_bytes(),
                                  .should_stop = [&context] { return context.stop_signal() != 0; }};
    surroundings.say = context.say_unless(command.is_json);
    const auto bench = bench_link(command, surroundings);
    if (!bench) return bench.error();
    std::vector<BenchRow> rows = bench->copies;
    rows.insert(rows.end(), bench->updates.begin(), bench->updates.end());
    return context.terminal.print(command.is_json ? json_of(rows) : text_of(*bench));
}

}  // namespace headrace::engine
