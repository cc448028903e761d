#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "engine/cli/commands.h"
#include "engine/cli/run_inputs.h"
#include "engine/config/load_config.h"
#include "engine/resume/run_store.h"
#include "nvme/store_facts.h"
#include "nvme/store_tools.h"
#include "offload/units.h"

namespace headrace::engine {

using nvme::ListedStore;
using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::Result;
using offload::Status;

namespace {

// Which store is meant, and where it lies.
struct Meant {
    std::string store_name;
    std::vector<std::string> paths;
};

// RUN is an output_dir, whose own settings say the rest, or a name that `store list` showed.
Result<Meant> find_meant(const StoreCommand& command) {
    Meant meant{.store_name = command.run, .paths = command.nvme_paths};
    const std::string resolved = command.run + "/config.resolved.yaml";
    std::error_code ignored;
    const bool is_folder = command.run.find('/') != std::string::npos ||
                           std::filesystem::is_directory(command.run, ignored);
    if (is_folder) {
        RunConfig named;
        named.output_dir = command.run;
        meant.store_name = store_name_of(named);
    }
    if (meant.paths.empty() && std::filesystem::exists(resolved, ignored)) {
        const Result<LoadedConfig> loaded = load_config(resolved, {});
        if (!loaded) return loaded.error();
        meant.paths = loaded->config.offload.nvme_paths;
    }
    if (!meant.paths.empty()) return meant;
    const bool has_settings = std::filesystem::exists(resolved, ignored);
    return Error{ErrorCode::usage,
                 fmt::format("cannot tell where the store of '{}' is", command.run),
                 std::string(has_settings ? "its last start named no drive, so it had none"
                                          : "it is no output_dir with settings in it") +
                     "; name every folder of the store with --nvme PATH"};
}

std::string line_of(const ListedStore& store) {
    std::string text = fmt::format("{}  {}", store.run_name, format_bytes(store.size_bytes));
    if (!store.fault.empty()) return text + "  unusable: " + store.fault;
    if (store.role == nvme::Role::successor) text += "  being moved or laid out anew";
    text += fmt::format("  path {} of {}", store.path_index + 1, store.paths.size());
    if (store.attempts) text += fmt::format("  committed: step {}", *store.attempts);
    if (!store.attempts && store.path_index == 0) text += "  no commit";
    if (store.is_live) {
        text += fmt::format("  in use by process {} on {}", store.owner.pid, store.owner.host);
    }
    if (store.paths.size() > 1) text += fmt::format("  [{}]", fmt::join(store.paths, ", "));
    return text;
}

Status list(const StoreCommand& command, Terminal& terminal) {
    std::string text;
    for (const std::string& path : command.nvme_paths) {
        const Result<std::vector<ListedStore>> stores = nvme::list_stores(path);
        if (!stores) return stores.error();
        text += fmt::format("{}: {}\n", path, stores->empty() ? "no store" : "");
        for (const ListedStore& store : *stores) text += "  " + line_of(store) + "\n";
    }
    return terminal.print(text);
}

Status verify(const Meant& meant, const CommandContext& context) {
    Terminal& terminal = context.terminal;
    nvme::Verify wanted{.paths = meant.paths, .run_name = meant.store_name};
    const DriveHooks& drives = context.hooks.drives;
    wanted.stuck_after = drives.stuck_after.value_or(wanted.stuck_after);
    wanted.on_stuck = context.leave_when_stuck();
    wanted.operations = drives.operations;
    const Result<nvme::Verified> verified = nvme::verify_store(wanted);
    if (!verified) return verified.error();
    if (!verified->damaged.empty()) {
        return Error{
            ErrorCode::bad_data,
            fmt::format("the commit of step {} is damaged: {} of {} places do not have the "
                        "sums they were written with: {}",
                        verified->attempts, verified->damaged.size(), verified->place_count,
                        fmt::join(verified->damaged, ", ")),
            "the drive lost or changed what it had taken: look at its health (smartctl), "
            "and begin the run anew"};
    }
    return terminal.print(fmt::format("whole: the commit of step {}, {} places, {}\n",
                                      verified->attempts, verified->place_count,
                                      format_bytes(verified->written_bytes)));
}

Status remove(const Meant& meant, Terminal& terminal) {
    const bool is_there = std::ranges::any_of(meant.paths, [&](const std::string& path) {
        std::error_code ignored;
        return std::filesystem::exists(nvme::run_folder_of(path, meant.store_name), ignored);
    });
    if (!is_there) {
        return Error{ErrorCode::bad_data,
                     fmt::format("there is no store '{}' on {}", meant.store_name,
                                 fmt::join(meant.paths, ", ")),
                     "headrace store list PATH shows what there is"};
    }
    const Status removed = nvme::remove_store(meant.paths, meant.store_name);
    if (!removed) return removed;
    return terminal.print(fmt::format("removed the store '{}' from {}\n", meant.store_name,
                                      fmt::join(meant.paths, ", ")));
}

Status move(const StoreCommand& command, const Meant& meant, const CommandContext& context) {
    Terminal& terminal = context.terminal;
    const DriveHooks& drives = context.hooks.drives;
    int told_percent = 0;
    nvme::Move wanted{
        .from_paths = meant.paths,
        .to_paths = command.target_paths,
        .run_name = meant.store_name,
        .drive_cache = context.environment.drive_cache,
        .progress =
            [&](uint64_t done_bytes, uint64_t total_bytes) {
                const auto percent = static_cast<int>(100.0 * static_cast<double>(done_bytes) /
                                                      static_cast<double>(total_bytes));
                if (percent < told_percent + 10) return;
                told_percent = percent;
                terminal.say(fmt::format("{}% of {}", percent, format_bytes(total_bytes)));
            },
        .note = [&](const std::string& line) { terminal.say(line); },
        .on_stuck = context.leave_when_stuck(),
        .operations = drives.operations};
    wanted.stuck_after = drives.stuck_after.value_or(wanted.stuck_after);
    const Status moved = nvme::move_store(wanted);
    if (!moved) return moved;
    return terminal.print(fmt::format("moved to {}; resume with nvme_paths=[{}]\n",
                                      fmt::join(command.target_paths, ", "),
                                      fmt::join(command.target_paths, ", ")));
}

}  // namespace

Status run_command(const StoreCommand& command, const CommandContext& context) {
    using Action = StoreCommand::Action;
    if (command.action == Action::list) return list(command, context.terminal);
    const Result<Meant> meant = find_meant(command);
    if (!meant) return meant.error();
    switch (command.action) {
        case Action::verify: return verify(*meant, context);
        case Action::move: return move(command, *meant, context);
        case Action::remove: return remove(*meant, context.terminal);
        case Action::list: break;
    }
    CHECK(false);
}

}  // namespace headrace::engine
