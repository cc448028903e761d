// BlockQueue: what waits for one drive. Transfers enter whole, in the order they were started; the
// threads that serve the drive take them out block by block, so that several transfers keep the
// drive's depth full together. The queue is the only thing that the ring (ring.h) and the calling
// threads (calls.h) know of the store.
//
// Order: reads and writes each leave in start order. While both wait, up to reads_in_a_row_max
// reads go between two writes, and writes take at most half of the depth: the drive serves in
// order, so a read waits for every byte queued before it, and the step usually waits for reads.
// A write limit (write_limit.h) holds writes back in time: reads then go in their place, and the
// write that is due goes first once it may.
//
// Nothing is allocated once as many blocks were in flight as ever will be: transfers are linked
// through their cursors. The queue itself has no bound of its own; it holds what the schedule has
// started. It also knows what is in flight and since when: for the statistics and the watchdog.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "nvme/block.h"
#include "nvme/path_statistics.h"
#include "nvme/placement.h"
#include "nvme/write_limit.h"
#include "offload/store.h"

namespace headrace::nvme {

inline constexpr uint32_t reads_in_a_row_max = 3;

// A transfer that has begun: which copy it moves, and what is left of it on each path.
struct ActiveTransfer {
    struct Cursor {
        ActiveTransfer* next = nullptr;  // in the path's queue
        uint64_t next_block = 0;         // the first that may lie on the path
        uint64_t block_count = 0;        // left on the path
    };

    ActiveTransfer* next = nullptr;  // in the store's own lists
    offload::Transfer transfer;
    CopyId copy;
    std::vector<Cursor> cursors;           // per path
    std::atomic<uint64_t> blocks_left{0};  // over all paths; the last one ends the transfer
    std::atomic_flag has_failed;
    offload::Status outcome;  // the first error; written by whoever set has_failed
};

// Sets up all of `active` but its queue links for moving `size_bytes` of `copy`.
void reset(ActiveTransfer& active, offload::Transfer transfer, CopyId copy,
           const Placement& placement);

// A block that a drive's thread took and has not ended yet.
struct BlockInFlight {
    offload::Direction direction = offload::Direction::read;
    offload::PlaceId place = 0;
    uint64_t offset_bytes = 0;
    uint64_t size_bytes = 0;
    uint64_t started_ns = 0;  // now_ns() when it was taken
};

class BlockQueue {
  public:
    // `finished` is called once per transfer, on the thread that finished its last block, with no
    // lock held. The placement and the limit (null: none) outlive the queue; several queues may
    // share a limit. depth: what the drive's threads hold at once.
    BlockQueue(const Placement& placement, uint32_t path, uint32_t depth,
               std::function<void(ActiveTransfer&)> finished, WriteLimit* limit = nullptr);
    BlockQueue(const BlockQueue&) = delete;
    ~BlockQueue();  // CHECKs that nothing waits

    // Any thread. Wakes the drive's threads.
    void add(ActiveTransfer& active);

    // No more transfers come; the drive's threads end when nothing waits.
    void close();
    bool is_closed() const;
    bool is_done() const;  // closed, and nothing waits

    // The next block, or nothing if none may go now. wait_and_take blocks until there is one, and
    // returns nothing only when the queue is closed and empty.
    std::optional<Block> take();
    std::optional<Block> wait_and_take();

    // When take() is worth another try although nothing was added or finished: a write that the
    // limit held may go then. Nothing: no write is held.
    std::optional<uint64_t> retry_at_ns() const;

    // The end of a taken block: its bytes are moved, or it failed. May call `finished`.
    void finish(const Block& block, uint64_t size_bytes, offload::Status status);

    // An eventfd that add() and close() write to, for threads that wait in a ring.
    int wake_descriptor() const { return wake_descriptor_; }

    PathStatistics statistics() const;  // but for the syncs
    std::optional<BlockInFlight> oldest_in_flight() const;

  private:
    struct Line {  // first in, first out
        ActiveTransfer* first = nullptr;
        ActiveTransfer* last = nullptr;
    };
    std::optional<Block> take_locked();
    Block take_from(Line& line, uint64_t at_ns);
    uint64_t next_block_bytes(const Line& line) const;
    bool may_go(const Line& writes, uint64_t at_ns);
    bool is_empty() const { return reads_.first == nullptr && writes_.first == nullptr; }
    void count_time(uint64_t at_ns);
    void count_idle(uint64_t at_ns);
    void wake();

    const Placement& placement_;
    const uint32_t path_;
    const uint32_t writes_in_flight_max_;  // while reads wait
    const std::function<void(ActiveTransfer&)> finished_;
    WriteLimit* const limit_;
    int wake_descriptor_ = -1;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Line reads_;
    Line writes_;
    uint32_t reads_in_a_row_ = 0;
    uint32_t writes_in_flight_ = 0;
    bool is_closed_ = false;
    std::vector<BlockInFlight> in_flight_;  // by ticket; size 0: the ticket is free
    std::vector<uint32_t> free_tickets_;
    std::optional<uint64_t> retry_at_ns_;
    uint64_t counted_to_ns_ = 0;       // depth and busy time are counted up to here
    uint64_t idle_since_ns_ = 0;       // nothing is in flight and something waits; 0: not so
    uint64_t idle_held_until_ns_ = 0;  // of that, how long the limit held it
    PathStatistics statistics_;
};

}  // namespace headrace::nvme
