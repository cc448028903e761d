#include "engine/resume/run_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "engine/resume/repack.h"
#include "nvme/promotion.h"
#include "nvme/run_folder.h"
#include "nvme/store_files.h"
#include "nvme/striping.h"

namespace headrace::engine {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// Of the folder's name in the store's name, which has a limit of its own.
constexpr size_t name_length_max = 40;

nvme::IoEngine io_engine_of(IoEngine engine) {
    switch (engine) {
        case IoEngine::automatic: return nvme::IoEngine::automatic;
        case IoEngine::uring: return nvme::IoEngine::uring;
        case IoEngine::threads: return nvme::IoEngine::threads;
    }
    CHECK(false);
}

// What else lies on these paths: a run whose output_dir was renamed, or mistyped, is among it.
std::string other_stores(const std::vector<std::string>& paths) {
    std::vector<std::string> others;
    for (const std::string& path : paths) {
        const auto stores = nvme::list_stores(path);
        if (!stores) continue;
        for (const nvme::ListedStore& store : *stores) {
            if (!store.attempts) continue;
            others.push_back(fmt::format("'{}' (step {})", store.run_name, *store.attempts));
        }
    }
    if (others.empty()) return "";
    return fmt::format(
        "; there is {}: a store is named after the place of its output_dir, so one that was moved "
        "or renamed must go back to be resumed",
        fmt::join(others, ", "));
}

Error opening_error(const Error& error, const std::string& store_name) {
    return wrap(error, fmt::format("opening the store '{}', named after output_dir", store_name));
}

// What there is, once nobody holds it. While the last writes of a run that was killed are on their
// way the store counts as in use, and what it says may change; the opening would wait for them, and
// then replace it.
Result<std::optional<nvme::StoreFacts>> look_when_free(const std::vector<std::string>& paths,
                                                       const std::string& name) {
    Result<std::optional<nvme::StoreFacts>> facts = nvme::look_at_store(paths, name);
    if (!facts || !facts->has_value() || !(*facts)->is_live) return facts;
    for (const std::string& path : (*facts)->paths) {
        const auto folder = nvme::open_run_folder({.path = path, .run_name = name},
                                                  nvme::Existence::must_exist, {});
        const bool is_there = nvme::exists(nvme::run_folder_of(path, name));
        if (!folder && is_there) return opening_error(folder.error(), name);
    }
    return nvme::look_at_store(paths, name);
}

nvme::StoreOptions store_options(const RunStoreOptions& options) {
    nvme::StoreOptions store{
        .paths = options.config.offload.nvme_paths,
        .run_name = store_name_of(options.config),
        .places = options.places,
        .engine = io_engine_of(options.config.offload.advanced.io_engine),
        .buffers = {options.buffers},
        .budget_bytes = options.placement.budgets.nvme_bytes,
        .opening = options.saved == nullptr ? nvme::Opening::fresh : nvme::Opening::resume};
    if (const auto& limit = options.config.offload.nvme_max_write_bytes) {
        store.write_bytes_per_s_max = *limit;
    }
    store.on_stuck = options.on_stuck;
    store.stuck_after = options.drives.stuck_after.value_or(store.stuck_after);
    store.operations = options.drives.operations;
    return store;
}

// The budget holds for the two together.
Status check_room_for_both(const RunStoreOptions& options) {
    const uint64_t before_bytes = options.saved->store.size_bytes;
    const uint64_t after_bytes = options.placement.needs.nvme_bytes;
    const uint64_t budget_bytes = options.placement.budgets.nvme_bytes;
    if (before_bytes <= budget_bytes && after_bytes <= budget_bytes - before_bytes) return {};
    const bool has_budget = options.config.offload.nvme_budget_bytes.has_value();
    return Error{
        ErrorCode::does_not_fit,
        fmt::format("repacking holds the run twice for a while, {} and {}, and {} {}",
                    offload::format_bytes(before_bytes), offload::format_bytes(after_bytes),
                    has_budget ? "nvme_budget is" : "with its store the drives have room for",
                    offload::format_bytes(budget_bytes)),
        fmt::format("{}, or keep part_bytes and optimizer_states as they were",
                    has_budget ? "raise nvme_budget for this start" : "free space there")};
}

// How many blocks of a cycle go to each path: as their drives last.
Result<std::vector<uint32_t>> weights_of_paths(const RunStoreOptions& options) {
    const std::vector<std::string>& paths = options.config.offload.nvme_paths;
    std::vector<uint32_t> even(paths.size(), 1);
    if (!nvme::are_on_several_drives(paths, options.drives.drives_of)) return even;
    nvme::ProbeOptions probe{.paths = paths,
                             .run_name = "measure." + store_name_of(options.config),
                             .engine = io_engine_of(options.config.offload.advanced.io_engine),
                             .pool = options.buffers,
                             .should_stop = options.should_stop,
                             .on_stuck = options.on_stuck,
                             .operations = options.drives.operations};
    probe.stuck_after = options.drives.stuck_after.value_or(probe.stuck_after);
    if (options.buffers.size() < nvme::DriveProbe::pool_bytes_min(probe)) return even;
    auto striping = nvme::find_striping({.probe = std::move(probe),
                                         .cache_file = options.drive_cache,
                                         .now_unix_s = static_cast<int64_t>(std::time(nullptr))});
    if (!striping) return striping.error();
    for (const std::string& note : striping->notes) options.note(note);
    return std::move(striping->weights);
}

// Those that the saved store has, in the order in which this start names its paths.
std::vector<uint32_t> saved_weights(const RunStoreOptions& options) {
    const nvme::StoreFacts& saved = options.saved->store;
    CHECK_EQ(saved.paths.size(), saved.weights.size());
    std::vector<uint32_t> weights;
    for (const std::string& path : options.config.offload.nvme_paths) {
        const auto own = std::ranges::find(saved.paths, path);
        CHECK(own != saved.paths.end());
        weights.push_back(saved.weights[static_cast<size_t>(own - saved.paths.begin())]);
    }
    return weights;
}

// The saved run, its parts cut and its states kept as this start wants them, in a successor that
// then takes its place. The commit that it begins with.
Result<nvme::CommitId> repack_saved(const RunStoreOptions& options) {
    const RunConfig& config = options.config;
    const auto layout =
        layout_of(options.model, config.dtype, options.saved->saved.identity.part_bytes);
    if (!layout) return layout.error();
    const auto states = states_of(options.saved->saved.identity);
    if (!states) return states.error();
    if (Status fits = check_room_for_both(options); !fits) return fits.error();
    nvme::StoreOptions before = store_options(options);
    before.places = options.saved->store.places;
    before.buffers.clear();
    nvme::StoreOptions after = before;
    before.expected = options.saved->store.newest_id();
    after.places = nvme::durable_of(options.places);
    after.weights = saved_weights(options);
    after.opening = nvme::Opening::successor;
    after.predecessor = {.uuid = options.saved->store.uuid,
                         .paths = options.saved->store.known_paths};
    const std::vector<std::string>& paths = config.offload.nvme_paths;
    nvme::Uuid successor = {};
    Status status;
    {
        auto source = nvme::open_store(std::move(before));
        if (!source) return source.error();
        auto target = nvme::open_store(std::move(after));
        if (!target) return target.error();
        successor = (*target)->uuid();
        const offload::Workload& wanted = options.placement.workload;
        status = repack(
            {.store = source->get(), .layout = &*layout, .states = *states},
            {.store = target->get(), .layout = &wanted.layout, .states = wanted.states},
            config.dtype,
            options.placement.budgets.ram_bytes);  // of the engine's own nothing is touched yet
        const Saved& saved = options.saved->saved;
        if (status.ok()) {  // not a step was done: what computed them is as it was
            const Identity identity =
                identity_after(saved.progress.attempts, saved, options.identity);
            status = commit_and_wait(**target, record_of(identity, saved.progress));
        }
    }
    const nvme::FileOperations& operations = options.drives.operations;
    if (!status.ok()) {
        static_cast<void>(
            nvme::discard_successor(paths, store_name_of(config), successor, operations));
        return status.error();
    }
    status = nvme::promote_store(paths, store_name_of(config), successor, operations);
    if (!status.ok()) return status.error();
    return nvme::CommitId{.uuid = successor, .sequence = nvme::first_sequence};
}

// One line: what becomes of parts and states.
std::string describe_repack(const RunStoreOptions& options) {
    const Identity& before = options.saved->saved.identity;
    const offload::Workload& wanted = options.placement.workload;
    const auto states = states_of(before);
    std::string text;
    if (states && *states != wanted.states) {
        text = fmt::format("converting the run's optimizer states from {} to {}; ",
                           name_of(*states), name_of(wanted.states));
    }
    if (options.saved->store.places[0].copies != options.placement.plan.durable_copies) {
        text +=
            fmt::format("keeping {} of everything; ",
                        options.placement.plan.durable_copies == offload::Copies::two ? "two copies"
                                                                                      : "one copy");
    }
    return text + fmt::format("repacking the run's parts: {} of at most {} become {} of at most {}",
                              options.saved->store.places.size() / 2,
                              offload::format_bytes(before.part_bytes), wanted.layout.parts.size(),
                              offload::format_bytes(options.placement.part_bytes));
}

}  // namespace

std::string store_name_of(const RunConfig& config) {
    std::error_code ignored;  // then links in it stay as they are
    std::filesystem::path folder = std::filesystem::absolute(config.output_dir).lexically_normal();
    const std::filesystem::path real = std::filesystem::weakly_canonical(folder, ignored);
    if (!ignored) folder = real;
    if (!folder.has_filename()) folder = folder.parent_path();  // "runs/a/" is "runs/a"
    std::string name = folder.filename().string().substr(0, name_length_max);
    std::ranges::replace_if(
        name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-'; }, '_');
    const std::string path = folder.string();
    return fmt::format("{}-{:08x}", name, XXH3_64bits(path.data(), path.size()) >> 32);
}

Result<std::optional<SavedRun>> find_saved_run(const RunConfig& config) {
    const std::vector<std::string>& paths = config.offload.nvme_paths;
    if (paths.empty()) return std::optional<SavedRun>{};
    const std::string name = store_name_of(config);
    Result<std::optional<nvme::StoreFacts>> facts = config.overwrite_output_dir
                                                        ? nvme::look_at_store(paths, name)
                                                        : look_when_free(paths, name);
    if (!facts && config.overwrite_output_dir) {
        return wrap(facts.error(),
                    fmt::format("cannot throw away the store '{}', as overwrite_output_dir asks "
                                "(headrace store remove can)",
                                name));
    }
    if (!facts) return facts.error();
    const bool has_commit = facts->has_value() && (*facts)->newest.has_value();
    if (config.resume_from_checkpoint) {
        if (!has_commit) {
            return Error{
                ErrorCode::bad_data,
                fmt::format("there is no run to resume in {}", config.output_dir),
                fmt::format("no store '{}' with a commit on {}: a run that is finished has "
                            "none, nor has one that crashed and kept one copy; leave "
                            "resume_from_checkpoint "
                            "out, or name the run's own output_dir and nvme_paths{}",
                            name, fmt::join(paths, ", "), other_stores(paths))};
        }
        Result<Saved> saved = read_record((*facts)->newest->record);
        if (!saved) return saved.error();
        return std::optional(SavedRun{.saved = std::move(*saved), .store = std::move(**facts)});
    }
    if (has_commit && (*facts)->newest->record.attempts > 0 && !config.overwrite_output_dir) {
        return Error{
            ErrorCode::usage,
            fmt::format("{} has an unfinished run: {} steps are committed in the store "
                        "'{}' on {}",
                        config.output_dir, (*facts)->newest->record.attempts, name,
                        fmt::join(paths, ", ")),
            "resume_from_checkpoint=true goes on with it, overwrite_output_dir=true throws "
            "it away"};
    }
    return std::optional<SavedRun>{};
}

Result<std::unique_ptr<nvme::NvmeStore>> open_run_store(RunStoreOptions options) {
    const auto failed = [&](const Error& error) {
        return opening_error(error, store_name_of(options.config));
    };
    nvme::StoreOptions opening = store_options(options);
    if (options.saved != nullptr) opening.expected = options.saved->store.newest_id();
    if (options.saved != nullptr &&
        options.saved->store.places != nvme::durable_of(options.places)) {
        options.note(describe_repack(options));
        const Result<nvme::CommitId> repacked = repack_saved(options);
        if (!repacked) return failed(repacked.error());
        opening.expected = *repacked;
    }
    if (options.saved == nullptr) {
        Result<std::vector<uint32_t>> weights = weights_of_paths(options);
        if (!weights) return failed(weights.error());
        opening.weights = std::move(*weights);
    }
    auto store = nvme::open_store(std::move(opening));
    if (!store) return failed(store.error());
    return store;
}

}  // namespace headrace::engine
