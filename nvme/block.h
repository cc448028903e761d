// Block: the piece of a transfer that goes to one drive in one request (by default 1 MiB), and what
// becomes of it when a result arrives. One rule for the ring and for pread: short counts go on
// where they ended, EINTR and EAGAIN are tried again within a bound, nothing else is forgiven.
// Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "offload/result.h"
#include "offload/store.h"

namespace headrace::nvme {

// Results without progress (EINTR, EAGAIN, less than a page) that are forgiven one after another.
inline constexpr int retries_in_a_row_max = 64;

struct ActiveTransfer;  // block_queue.h

struct Block {
    ActiveTransfer* transfer = nullptr;  // null: not part of one
    offload::Direction direction = offload::Direction::read;
    uint64_t offset_bytes = 0;    // of what is left, in the file
    std::span<std::byte> memory;  // what is left; empty: finished
    int retry_count = 0;          // in a row
    uint32_t ticket = 0;          // the queue's own: where it keeps what is in flight
};

enum class Progress : uint8_t { finished, again };

// Takes in the result of one request for the whole rest of the block: a byte count or a negative
// errno. `again`: issue what is left of the block. Progress is counted in whole pages, because
// O_DIRECT cannot go on in the middle of one. Errors name the path, the offset, the bytes wanted
// and what came instead.
offload::Result<Progress> advance(Block& block, int64_t result, const std::string& path);

// Lets time pass before a retry (1 ms from the eighth on): EAGAIN means that the kernel is short of
// something. Returns at once for a block that made progress.
void pause_before_retry(const Block& block);

}  // namespace headrace::nvme
