// Promotion: how a successor takes the place of the store it was made for (FORMAT.md, successors).
// Whoever moves a store, or lays its places out anew, opens the old one (Opening::resume) and a
// successor beside it (Opening::successor), fills the successor, commits it, closes both and calls
// promote_store. The seal of the successor's first commit is the switch: before it a crash leaves
// the old store and the next open removes the successor; after it the next open ends the promotion.
#pragma once

#include <string>
#include <vector>

#include "nvme/file_operations.h"
#include "nvme/format.h"
#include "offload/result.h"

namespace headrace::nvme {

// Removes the store that the successor succeeds, wherever that lies, and gives the successor its
// name. `paths`: all of the successor's, in any order; `uuid`: the successor's own, so that one
// that somebody else's look promoted a moment ago is known again. Errors: there is no successor, it
// has no commit, a folder is in use, a path of the successor is missing, the system's. After an
// Error the next open or look goes on.
offload::Status promote_store(const std::vector<std::string>& paths, const std::string& run_name,
                              const Uuid& uuid, const FileOperations& operations = {});

// For whoever could not fill or commit the successor with this uuid: takes it away whatever it
// holds, its commit first if one reached the drive, so that it is not promoted. Call it with the
// successor closed. After an Error the next open or look decides by what the drive has.
offload::Status discard_successor(const std::vector<std::string>& paths,
                                  const std::string& run_name, const Uuid& uuid,
                                  const FileOperations& operations = {});

// Ends a promotion that was cut short, or takes a successor without a commit away. Does nothing
// where there is no successor, and where somebody holds it. Called by open_store and look_at_store.
offload::Status finish_promotion(const std::vector<std::string>& paths, const std::string& run_name,
                                 const FileOperations& operations = {});

}  // namespace headrace::nvme
