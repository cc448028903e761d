// Store: a run's bytes outside memory, as numbered places of fixed size. This is the seam between
// the schedule and a drive: nvme/ implements it with io_uring or threads, MemoryStore (below) is
// the in-memory twin for tests, FaultyStore wraps any of them and injects seeded faults.
//
// A place is read and written from its beginning, `size_bytes` at a time (whole, or a prefix).
// A place that was never written reads as zeros, without I/O. A place with two copies holds
// {truth, spare}: a write goes to the spare copy and, once complete, makes it the truth; a failed
// write leaves the truth as it was. What a write of a prefix does not reach stays as it was in a
// place with one copy, and reads as zeros in a place with two. Reads and writes of one place never
// overlap in time: the schedule's edges see to it. Different places may be in flight together, in
// any number: the store bounds its own queues.
//
// Threads: start() may be called from any thread, also from inside a `done`; it does not block on
// I/O. `done` is called exactly once, on a thread of the store (MemoryStore: inside start()), and
// must not block. The memory of a transfer belongs to the store until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "offload/result.h"

namespace headrace::offload {

using PlaceId = uint32_t;

struct PlaceSpec {
    std::string name;         // for error texts and the store's map: "hi layers.3/0"
    uint64_t size_bytes = 0;  // a multiple of page_bytes
    uint8_t copy_count = 1;   // 2: {truth, spare}
    bool operator==(const PlaceSpec&) const = default;
};

enum class Direction : uint8_t { read, write };

struct Transfer {
    Direction direction = Direction::read;
    PlaceId place = 0;
    // Source or target; page-aligned, a multiple of page_bytes, at most the place's size.
    std::span<std::byte> memory;
    std::function<void(Status)> done;
};

class Store {
  public:
    virtual ~Store() = default;

    // Begins one transfer. Faults of the drive arrive in `done`; a bad place or a misaligned buffer
    // is a bug (CHECK).
    virtual void start(Transfer transfer) = 0;

    // Makes every write that is complete durable (fdatasync of every path). Blocks.
    virtual Status flush() = 0;

    // The places, in the order of their ids.
    virtual const std::vector<PlaceSpec>& places() const = 0;
};

// One transfer, waited for. Not from inside a `done`.
Status transfer_and_wait(Store& store, Direction direction, PlaceId place,
                         std::span<std::byte> memory);

}  // namespace headrace::offload
