// The weights of a new store on several paths: from what is known of the drives (drive_cache.h),
// else from a quick measurement of each. A store that is opened again keeps the weights of its map.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "nvme/drive.h"
#include "nvme/probe.h"
#include "offload/result.h"

namespace headrace::nvme {

struct StripingOptions {
    // paths, pool, engine, depth, block_bytes, should_stop, stuck_after, on_stuck and run_name: for
    // what is measured. The run name is that of no store which is to be kept.
    ProbeOptions probe;
    std::string cache_file;  // drives.json; empty: none
    int64_t now_unix_s = 0;
};

struct Striping {
    std::vector<uint32_t> weights;   // for StoreOptions
    std::vector<Drive> drives;       // per path; empty for one path, which needs no weight
    std::vector<std::string> notes;  // one line each, for people
};

// The names of the drives behind a path; empty: those that the system says (file_system.h).
using DrivesOf = std::function<std::set<std::string>(const std::string& path)>;

// Whether there is anything to weigh: false where all paths share one drive, or a drive cannot be
// told. The blocks then go round evenly.
bool are_on_several_drives(const std::vector<std::string>& paths, const DrivesOf& drives_of = {});

// Takes up to 1.5 s for each drive that is not known, one after the other, and remembers what it
// measured. Errors: the probe's (no room, no right, a drive that fails), naming the path.
offload::Result<Striping> find_striping(const StripingOptions& options);

}  // namespace headrace::nvme
