// The store of a run: what its folders are called, what an earlier start left in them, and how it
// is opened: empty, or where that start was stopped. Parts that are cut otherwise now are repacked
// into a successor of the store first.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/placement.h"
#include "engine/resume/drive_hooks.h"
#include "engine/resume/identity.h"
#include "nvme/nvme_store.h"
#include "nvme/store_facts.h"

namespace headrace::engine {

// The same for every run of one output_dir, another for every other.
std::string store_name_of(const RunConfig& config);

// What is resumed: what the newest commit says, and the store it was found in.
struct SavedRun {
    Saved saved;
    nvme::StoreFacts store;
};

// With resume_from_checkpoint: what there is to resume; Error (bad_data) if there is nothing.
// Without: nothing, and an Error (usage) if this start would throw steps of an unfinished run away
// without having been told to (overwrite_output_dir). Waits for the last writes of a run that was
// killed; Error (failed), with its owner's name, for a store that is in use.
offload::Result<std::optional<SavedRun>> find_saved_run(const RunConfig& config);

struct RunStoreOptions {
    const RunConfig& config;
    const Placement& placement;
    const LlamaConfig& model;
    const Identity& identity;         // of this start
    const SavedRun* saved = nullptr;  // null: an empty store
    std::string drive_cache;          // nvme/drive_cache.h; empty: none
    std::vector<offload::PlaceSpec> places;
    std::span<std::byte> buffers;  // all I/O memory of the engine
    DriveHooks drives{};
    std::function<void(const std::string&)> note;      // one line
    std::function<void(const std::string&)> on_stuck;  // engine/train/train.h, stuck
    std::function<bool()> should_stop{};               // the measuring of drives; empty: never
};

// A saved run is opened at the commit that was read, or not at all: Error (failed) where another
// process went on with the store since.
offload::Result<std::unique_ptr<nvme::NvmeStore>> open_run_store(RunStoreOptions options);

}  // namespace headrace::engine
