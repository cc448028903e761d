#include <fmt/format.h>

#include <filesystem>

#include "engine/cli/bench_step.h"
#include "engine/cli/commands.h"
#include "engine/cli/rehearsal_source.h"

namespace headrace::engine {

using offload::Result;

offload::Status run_command(const BenchStepCommand& command, const CommandContext& context) {
    const Result<RehearsalSource> source =
        read_rehearsal(command.what, command.overrides, context.environment);
    if (!source) return source.error();
    const auto inputs = rehearsal_inputs(
        *source, source->loaded.config,
        {.block_count = command.block_count, .step_count = command.step_count}, context);
    if (!inputs) return inputs.error();
    StepBenchContext surroundings{
        .inputs = *inputs,
        .reporter = rehearsal_reporter(Notes::kept_back, context),
        .model_name = std::filesystem::path(source->loaded.config.model).stem().string()};
    surroundings.say = context.say_unless(command.is_json);
    const Result<StepBench> bench = bench_step(command, surroundings);
    if (!bench) return bench.error();
    if (command.is_json) return context.terminal.print(json_of(bench->rows));
    return context.terminal.print(
        text_of(*bench) +
        fmt::format("Medians of {} rounds, seconds; a step is held against its longest lane at the "
                    "rates of the moment.\n",
                    command.rounds));
}

}  // namespace headrace::engine
