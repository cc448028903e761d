// What a store is opened with. Values.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nvme/file_operations.h"
#include "nvme/format.h"
#include "nvme/journal.h"
#include "nvme/ring.h"
#include "nvme/uring_probe.h"
#include "offload/store.h"
#include "offload/units.h"

namespace headrace::nvme {

// fresh: an empty store; one of the same run that nobody holds is replaced, whatever it held.
// resume: the one that is there, at one of its commits. successor: an empty store beside the run's,
// in `.next` folders; once it has a commit, it and not the other is the run's (promotion.h).
enum class Opening : uint8_t { fresh, resume, successor };

struct StoreOptions {
    std::vector<std::string> paths = {};  // resume: in any order
    std::string run_name = {};            // of the folder: letters, digits, '.', '_', '-'
    // resume: those with two copies must be the store's, in its order; those with one may be any.
    std::vector<offload::PlaceSpec> places = {};
    // Blocks per path and cycle; empty: equal; resume: unused. Where a drive has no room for its
    // share they come nearer to equal ones until there is, which is noted.
    std::vector<uint32_t> weights = {};
    IoEngine engine = IoEngine::automatic;
    uint32_t depth = 8;  // blocks in flight per path; threads: at most 8 of them
    uint64_t block_bytes = 1 * offload::mib;  // of a request, and the stripe; resume: unused
    std::vector<std::span<std::byte>> buffers = {};
    Registration registration = Registration::preferred;
    uint64_t budget_bytes = std::numeric_limits<uint64_t>::max();  // of all paths together
    // Of writes of places, all paths together; at least 1. The maximum: as fast as they go.
    uint64_t write_bytes_per_s_max = std::numeric_limits<uint64_t>::max();
    // When a request has not ended for stuck_after, on_stuck is called with the words for it, once,
    // on a thread of the store. Whoever gets them says them and ends the process with _exit; to
    // leave without running into destructors, abandon() the store. Without on_stuck nobody watches.
    std::chrono::nanoseconds stuck_after = std::chrono::seconds(300);
    std::function<void(std::string)> on_stuck = {};
    FileOperations operations = {};  // tests: faults
    Opening opening = Opening::fresh;
    std::optional<uint64_t> attempts = {};  // resume: of the commit wanted; none: the newest
    // resume: the newest commit must be this one, or the open is refused (failed): what was read of
    // the store before is of another one.
    std::optional<CommitId> expected = {};
    Predecessor predecessor = {};  // successor: the store that it will succeed
};

}  // namespace headrace::nvme
