// What `headrace store verify` and `headrace store move` do. Both take the store: one that is in
// use is refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nvme/store_options.h"
#include "nvme/striping.h"
#include "offload/result.h"

namespace headrace::nvme {

struct Verified {
    uint64_t attempts = 0;  // of the newest commit, which is what is looked at
    uint64_t place_count = 0;
    uint64_t written_bytes = 0;             // of places, read and summed
    std::vector<std::string> damaged = {};  // names of places whose sums differ
};

struct Verify {
    std::vector<std::string> paths = {};  // all of the store's, in any order
    std::string run_name = {};
    // Called after each place with its name and what became of it; may be empty.
    std::function<void(const std::string&, const offload::Status&)> report = {};
    std::chrono::nanoseconds stuck_after = std::chrono::seconds(300);  // as in store_options.h
    std::function<void(std::string)> on_stuck = {};                    // as there
    FileOperations operations = {};                                    // tests: faults
};

// Reads every durable place of the newest commit and verifies its sum. Errors: no store, no commit,
// the drive's; another process went on with the store meanwhile; damage is no Error but a part of
// the answer.
offload::Result<Verified> verify_store(const Verify& verify);

struct Move {
    std::vector<std::string> from_paths = {};  // all of the store's, in any order
    std::vector<std::string> to_paths = {};    // may name some of the same
    std::string run_name = {};
    // Of to_paths. Empty: those that the store has there, where all of them are its own; else by
    // what the drives can do, known or measured as for a new store (striping.h).
    std::vector<uint32_t> weights = {};
    std::string drive_cache = {};  // drive_cache.h; empty: none
    IoEngine engine = IoEngine::automatic;
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
    std::function<void(const std::string&)> note = {};  // one line for people; may be empty
    std::chrono::nanoseconds stuck_after = std::chrono::seconds(300);  // as in store_options.h
    std::function<void(std::string)> on_stuck = {};                    // as there
    FileOperations operations = {};                                    // tests: faults
    DrivesOf drives_of = {};                                           // tests: two drives of one
};

// Copies the newest commit, sums verified, into a successor on to_paths and promotes it
// (promotion.h): a crash leaves the one or the other. The commit before it does not come along.
// Room for both is needed until the old one is gone, and checked first. The old folders are
// removed. A successor that could not be filled is taken away, and the store is where it was; after
// an Error of the promotion the next open or look goes on with it.
offload::Status move_store(const Move& move);

}  // namespace headrace::nvme
