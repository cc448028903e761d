#include <fmt/format.h>

#include "engine/cli/bench_gemm.h"
#include "engine/cli/commands.h"
#include "engine/cli/shape_of_model.h"
#include "engine/config/cores.h"
#include "engine/config/machine.h"

namespace headrace::engine {

offload::Status run_command(const BenchGemmCommand& command, const CommandContext& context) {
    LlamaConfig shape = default_shape();
    if (!command.model.empty()) {
        const offload::Result<Shape> named = read_shape(command.model, context.environment);
        if (!named) return named.error();
        shape = named->config;
    }
    GemmBenchContext surroundings{
        .compute_thread_count = command.compute_thread_count > 0
                                    ? command.compute_thread_count
                                    : static_cast<int>(usable_core_count()),
        .free_bytes = read_machine().ram_free_bytes(),
        .should_stop = [&context] { return context.stop_signal() != 0; }};
    surroundings.say = context.say_unless(command.is_json);
    const auto bench = bench_gemm(command, shape, surroundings);
    if (!bench) return bench.error();
    if (command.is_json) return context.terminal.print(json_of(bench->rows));
    return context.terminal.print(
        table_of(bench->rows, {{.fact = "seconds", .title = "seconds"}}) +
        fmt::format("{} threads, {}, {} x {} tokens. Medians of {} rounds; a step is all blocks "
                    "and the head.\n",
                    surroundings.compute_thread_count, name_of(command.dtype), command.row_count,
                    command.column_count, command.rounds));
}

}  // namespace headrace::engine
