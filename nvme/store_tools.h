// What `headrace store verify` and `headrace store move` do. Both take the store: one that is in
// use is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nvme/store_options.h"
#include "offload/result.h"

namespace headrace::nvme {

struct Verified {
    uint64_t attempts = 0;  // of the newest commit, which is what is looked at
    uint64_t place_count = 0;
    uint64_t written_bytes = 0;             // of places, read and summed
    std::vector<std::string> damaged = {};  // names of places whose sums differ
};

// Reads every durable place of the newest commit and verifies its sum. `report`, if given, is
// called after each place with its name and what became of it. Errors: no store, no commit, the
// drive's; damage is no Error but a part of the answer.
offload::Result<Verified> verify_store(
    const std::vector<std::string>& paths, const std::string& run_name,
    const std::function<void(const std::string&, const offload::Status&)>& report = {});

struct Move {
    std::vector<std::string> from_paths = {};  // all of the store's, in any order
    std::vector<std::string> to_paths = {};    // may name some of the same
    std::string run_name = {};
    std::vector<uint32_t> weights = {};  // of to_paths; empty: equal
    IoEngine engine = IoEngine::automatic;
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
    FileOperations operations = {};  // tests: faults
};

// Copies the newest commit, sums verified, into a successor on to_paths and promotes it
// (promotion.h): a crash leaves the one or the other. The commit before it does not come along.
// Room for both is needed until the old one is gone, and checked first. The old folders are
// removed.
offload::Status move_store(const Move& move);

}  // namespace headrace::nvme
