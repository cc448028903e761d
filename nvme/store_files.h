// StoreFiles: the folders of one store on all its paths, every file of them locked by this process,
// in the order of the store. Here a store is made, or found again: which of the user's paths is
// which is read off the maps. No byte is touched before all locks are held.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nvme/format.h"
#include "nvme/journal.h"
#include "nvme/run_folder.h"
#include "nvme/store_options.h"
#include "offload/result.h"

namespace headrace::nvme {

struct StoreFiles {
    std::vector<std::unique_ptr<RunFolder>> folders;  // by path index
    Placement placement;                              // of options.places
    std::unique_ptr<Journal> journal;                 // of folder 0
};

// Removes the folders that an open made and that hold nothing yet: it failed.
void remove_new(const std::vector<std::unique_ptr<RunFolder>>& folders);

// The two-copy places of a list, in its order.
std::vector<offload::PlaceSpec> durable_of(const std::vector<offload::PlaceSpec>& places);

// What a store of these places takes: data and maps, all paths together.
uint64_t store_bytes_of(const std::vector<offload::PlaceSpec>& places, size_t path_count);

// Opening::fresh and Opening::successor: checks budget, paths and room, makes the folders or takes
// them over, and lays the store out. A failure takes new folders away again.
offload::Result<StoreFiles> make_store_files(const StoreOptions& options,
                                             std::vector<std::string>& notes);

// Opening::resume: finds the store, checks that it is whole and that its durable places are those
// of the options, and lays the scratch places out behind them. The journal is read.
offload::Result<StoreFiles> resume_store_files(const StoreOptions& options,
                                               std::vector<std::string>& notes);

// The order in which these maps make up one store: element i is the position, in `maps`, of path
// index i. The Error (bad_data) names what does not belong and what is missing; `paths` are the
// names for it, parallel to `maps`.
offload::Result<std::vector<size_t>> order_of(const std::vector<MapImage>& maps,
                                              const std::vector<std::string>& paths);

}  // namespace headrace::nvme
