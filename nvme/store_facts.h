// What lies on the user's paths, told without taking a store: for whoever decides whether to resume
// or to begin anew, and for `headrace store list`. Nothing is locked for longer than the look, and
// nothing is changed but a promotion that was cut short (promotion.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nvme/format.h"
#include "nvme/journal.h"
#include "nvme/run_folder.h"
#include "offload/result.h"
#include "offload/store.h"

namespace headrace::nvme {

struct StoreFacts {
    Uuid uuid = {};
    std::vector<std::string> paths = {};          // as the user gave them, by path index
    std::vector<std::string> known_paths = {};    // the same, absolute
    std::vector<offload::PlaceSpec> places = {};  // durable ones
    uint64_t stripe_bytes = 0;
    std::vector<uint32_t> pattern = {};
    std::vector<uint32_t> weights = {};  // that make this pattern
    std::optional<Commit> newest = {};
    std::optional<Commit> older = {};  // its bytes may be written over: an open at it will tell
    Owner owner = {};                  // who opened it last
    bool is_live = false;              // somebody holds a file of it
    uint64_t size_bytes = 0;           // all files, all paths

    // None without a commit. For StoreOptions::expected: what opens is what was looked at.
    std::optional<CommitId> newest_id() const;
};

// The run's store on these paths, in any order; nothing if there is none that could be resumed nor
// is in use: no folder, one whose making was cut short, one of format 1. Errors (bad_data): not
// ours, made by a newer version, damaged, a missing or an extra path of a store with a commit, and
// a store that was moved elsewhere.
offload::Result<std::optional<StoreFacts>> look_at_store(const std::vector<std::string>& paths,
                                                         const std::string& run_name,
                                                         const FileOperations& operations = {});

// One folder that looks like a store's.
struct ListedStore {
    std::string run_name = {};
    std::string folder = {};
    Role role = Role::truth;
    std::string fault = {};  // why it cannot be used; empty: it is a part of a store
    uint32_t path_index = 0;
    std::vector<std::string> paths = {};    // of the store, by path index, when it was made
    std::optional<uint64_t> attempts = {};  // of its newest commit; on path 0 only
    Owner owner = {};
    bool is_live = false;
    uint64_t size_bytes = 0;
};

// All of a path, by name.
offload::Result<std::vector<ListedStore>> list_stores(const std::string& path);

// Whether somebody holds a file of the folder now. False where there is none.
bool is_held(const std::string& folder);

// The map of a folder as it is, without its lock: nothing for a store whose making was cut short,
// or of format 1. Errors: not ours, newer, damaged, the system's.
offload::Result<std::optional<MapImage>> look_at_map(const std::string& folder);

// That the store in this folder, of path index 0, was not moved away: an Error if it has a notice
// of a successor that has a commit. (One whose drive is not mounted cannot tell.)
offload::Status check_not_moved(const std::string& folder, const std::string& run_name,
                                const FileOperations& operations = {});

// The two commits of a folder whose map has path index 0 (CHECK), as the drive has them: the map is
// settled (run_folder.h), held or not. Whoever holds it loses nothing by that, no error either.
struct KeptCommits {
    std::optional<Commit> newest = {};
    std::optional<Commit> older = {};
};
offload::Result<KeptCommits> look_at_commits(const std::string& folder, const MapImage& map,
                                             const FileOperations& operations = {});

}  // namespace headrace::nvme
