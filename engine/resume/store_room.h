// What a run's store may take where nobody gave an nvme_budget: what is free on its drives now.
#pragma once

#include <cstdint>

#include "engine/config/run_config.h"

namespace headrace::engine {

// Of the room on nvme_paths, which are named (CHECK), an older store of this run counting as free
// (nvme/run_folder.h): all but a 64th, since a file system that is full to the brim is slow and
// serves others badly, and but result_bytes, the trained model's, where output_dir lies on one of
// the same file systems. 0 where a path cannot be asked.
uint64_t room_for_store(const RunConfig& config, uint64_t result_bytes);

}  // namespace headrace::engine
