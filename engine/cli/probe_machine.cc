#include "engine/cli/probe_machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <utility>

#include "engine/checkpoint/file.h"
#include "engine/cli/bench_gemm.h"
#include "engine/cli/run_inputs.h"
#include "engine/cli/shape_of_model.h"
#include "engine/config/cores.h"

namespace headrace::engine {

namespace {

// A folder of it that is missing will be made.
offload::Status check_kept(const std::string& path) {
    if (path.empty()) return {};
    std::error_code failure;
    const std::filesystem::path folder = std::filesystem::absolute(path, failure).parent_path();
    const bool is_there = std::filesystem::exists(folder, failure);
    const offload::Status possible =
        check_can_write(is_there ? path : (nearest_existing(folder, failure) / "x").string());
    if (possible) return {};
    return wrap(possible.error(), fmt::format("cannot write the machine file '{}'", path));
}

}  // namespace

offload::Result<MeasuredMachine> measure_and_keep(const DoctorCommand& command,
                                                  const CommandContext& context,
                                                  std::function<void(const std::string&)> say) {
    const std::string path =
        command.out.empty() ? context.environment.measured_machine : command.out;
    MeasureOptions options{
        .nvme_paths = command.nvme_paths,
        .shape = default_shape(),
        .shape_name = "a shape of 0.4 billion parameters",
        .token_count = command.token_count,
        .compute_thread_count = static_cast<int>(usable_core_count()),
        .update_thread_count = command.update_thread_count,
        .seconds = command.seconds,
        .when = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))),
        .should_stop = [&context] { return context.stop_signal() != 0; },
        .say = std::move(say),
        .on_stuck = context.leave_when_stuck()};
    if (!command.model.empty()) {
        const offload::Result<Shape> named = read_shape(command.model, context.environment);
        if (!named) return named.error();
        options.shape = named->config;
        options.shape_name = command.model;
    }
    // What cannot be used is told before it is measured.
    if (offload::Status status = check_nvme_paths(command.nvme_paths); !status) {
        return status.error();
    }
    if (offload::Status status = check_kept(path); !status) return status.error();
    offload::Result<MeasuredMachine> measured = measure_machine(options);
    if (!measured || path.empty()) return measured;
    if (offload::Status status = write_machine(*measured, path); !status) return status.error();
    return measured;
}

}  // namespace headrace::engine
