#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "engine/checkpoint/file.h"
#include "engine/cli/commands.h"
#include "engine/cli/probe_machine.h"
#include "engine/cli/rehearsal_source.h"
#include "engine/rehearse/tune.h"
#include "offload/check.h"

namespace headrace::engine {

namespace fs = std::filesystem;
using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// Beside the run file; where there is none, in the working folder. A shape alone cannot be trained.
std::string out_of(const TuneCommand& command, const RehearsalSource& source) {
    if (!command.out.empty() || source.is_shape_alone()) return command.out;
    const fs::path what(command.what);
    const std::string extension = what.extension().string();
    if (extension != ".yaml" && extension != ".yml") return "tuned.yaml";
    return (what.parent_path() / (what.stem().string() + ".tuned" + extension)).string();
}

// Told before anything is measured for minutes.
Status check_out(const std::string& out, const TuneCommand& command,
                 const RehearsalSource& source) {
    if (out.empty()) return {};
    if (source.is_shape_alone()) {
        return Error{ErrorCode::usage,
                     fmt::format("--out {}: a run file needs data to train on, and '{}' is a "
                                 "model's shape alone",
                                 out, command.what),
                     "headrace tune MODEL DATA, or a run file"};
    }
    std::error_code ignored;
    const fs::path folder = fs::absolute(out).parent_path();
    if (!fs::is_directory(folder, ignored)) {
        return Error{ErrorCode::usage,
                     fmt::format("cannot write the run file '{}': there is no folder '{}'", out,
                                 folder.string()),
                     "name another with --out"};
    }
    if (fs::is_directory(out, ignored)) {
        return Error{ErrorCode::usage,
                     fmt::format("cannot write the run file '{}': it is a folder", out),
                     "name a file with --out"};
    }
    if (!fs::exists(out, ignored) || command.is_overwriting) return {};
    return Error{ErrorCode::usage, fmt::format("the run file '{}' is there already", out),
                 "name another with --out, or say --overwrite"};
}

std::string run_file_of(const Tuning& tuning, const RehearsalSource& source) {
    const TuneCandidate& won = tuning.candidates[tuning.winner];
    LoadedConfig tuned = source.loaded;
    tuned.config = won.settings.config;
    for (const std::string_view key : won.settings.keys) {
        tuned.origins[std::string(key)] = "headrace tune";
    }
    std::vector<std::string> head = {
        "A run file as headrace tune leaves it: what it fixed changes "
        "no bit of the result."};
    for (std::string& line : describe(tuning)) head.push_back(std::move(line));
    return given_yaml(tuned, head);
}

// The rates of this machine, measured where neither a file nor an earlier probe tells them.
Status learn_rates(const TuneCommand& command, const CommandContext& context,
                   RehearsalSource& source) {
    const std::vector<std::string>& paths = source.loaded.config.offload.nvme_paths;
    const bool has_drives =
        source.machine && (source.machine->machine.drive.read_bytes_per_s > 0 || paths.empty());
    if (has_drives || !source.loaded.config.machine.empty()) return {};
    const auto say = context.say_unless(command.is_json);
    if (say) say("the rates of this machine are not known yet: measuring them, about 20 s");
    Result<MeasuredMachine> measured = measure_and_keep(
        {.nvme_paths = paths, .is_probe = true, .model = {}, .out = {}}, context, say);
    if (!measured) return measured.error();
    source.machine = std::move(measured->file);
    return {};
}

}  // namespace

Status run_command(const TuneCommand& command, const CommandContext& context) {
    Result<RehearsalSource> source =
        read_rehearsal(command.what, command.overrides, context.environment);
    if (!source) return source.error();
    const std::string out = out_of(command, *source);
    if (Status status = check_out(out, command, *source); !status) return status;
    if (Status status = learn_rates(command, context, *source); !status) return status;
    const auto inputs = rehearsal_inputs(
        *source, source->loaded.config,
        {.block_count = command.block_count, .step_count = command.step_count}, context);
    if (!inputs) return inputs.error();
    const TuneOptions options{.candidate_count = static_cast<size_t>(command.candidate_count),
                              .round_count = command.round_count};
    Result<Tuning> tuning = find_candidates(*inputs, options);
    if (!tuning) return tuning.error();
    const Status measured =
        measure(*tuning, *inputs, options, rehearsal_reporter(Notes::kept_back, context),
                context.say_unless(command.is_json));
    if (!measured) return measured;
    if (!out.empty()) {
        const std::string text = run_file_of(*tuning, *source);
        const Status written =
            save_text(out, text, command.is_overwriting ? Existing::replaced : Existing::refused);
        if (!written) return wrap(written.error(), "the run file");
    }
    if (command.is_json) return context.terminal.print(json_of(*tuning, out) + "\n");
    std::string text;
    for (const std::string& line : describe(*tuning)) text += line + "\n";
    if (!out.empty()) text += fmt::format("wrote {}: headrace train {}\n", out, out);
    return context.terminal.print(text);
}

}  // namespace headrace::engine
