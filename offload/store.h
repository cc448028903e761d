// Store: a run's bytes outside memory, as numbered places of fixed size. This is the seam between
// the schedule and a drive: nvme/ implements it with io_uring or threads, MemoryStore (below) is
// the in-memory twin for tests, FaultyStore wraps any of them and injects seeded faults.
//
// A place is read and written from its beginning, `size_bytes` at a time (whole, or a prefix).
// A place that was never written reads as zeros, without I/O. A place with two copies holds
// {truth, spare}: a write goes to the spare copy and, once complete, makes it the truth; a failed
// write leaves the truth as it was. What a write of a prefix does not reach stays as it was in
// scratch, and reads as zeros in a durable place. Reads and writes of one place never overlap in
// time: the schedule's edges see to it. Different places may be in flight together, in any number:
// the store bounds its own queues.
//
// A *commit* is the moment a step becomes the truth: what it names is found again after any crash.
// It is made in three moves, each of which the caller starts when the one before is done: sync of
// every path (what was written is durable), record (one record says where the truth of every
// durable place lies), seal (the record is durable). Two commits are kept, k and k-1: a write to a
// place of two copies goes over what k-1 names, so the caller starts none between the first sync of
// a commit and its seal. A durable place of one copy is written over in place: only while no commit
// stands, since the store was made or withdraw (CHECK). No commit speaks of scratch.
//
// Threads: all that take a `done` may be called from any thread, also from inside a `done`; they do
// not block on I/O. `done` is called exactly once, on a thread of the store (MemoryStore: before
// the call returns), and must not block. The memory of a transfer belongs to the store until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/copies.h"
#include "offload/result.h"

namespace headrace::offload {

using PlaceId = uint32_t;

struct PlaceSpec {
    std::string name;         // for error texts and the store's map: "hi layers.3/0"
    uint64_t size_bytes = 0;  // a multiple of page_bytes
    Copies copies = Copies::scratch;
    bool operator==(const PlaceSpec&) const = default;
};

enum class Direction : uint8_t { read, write };

using Done = std::function<void(Status)>;

struct Transfer {
    Direction direction = Direction::read;
    PlaceId place = 0;
    // Source or target; page-aligned, a multiple of page_bytes, at most the place's size.
    std::span<std::byte> memory;
    Done done{};
    // Writes of durable places: page_sum of the memory, where the caller made it while the bytes
    // were in cache; the store makes it otherwise.
    std::optional<uint64_t> sum{};
};

// What a commit says of the run, besides where the truth of every place lies.
struct CommitRecord {
    uint64_t attempts = 0;      // steps tried: the position in the data
    uint64_t updates = 0;       // steps applied: Adam's step and the learning rate's
    double gradient_scale = 1;  // the loss scale of the next step; 1 without a scaler
    uint64_t scale_steps = 0;   // finite steps since the last that was not: when it may rise
    std::string numerics{};     // what may change a bit; at most numerics_bytes_max
    std::string payload{};      // the engine's own; at most payload_bytes_max
    bool operator==(const CommitRecord&) const = default;
};
inline constexpr size_t numerics_bytes_max = 1024;
inline constexpr size_t payload_bytes_max = 2048;

class Store {
  public:
    virtual ~Store() = default;

    // Begins one transfer. Faults of the drive arrive in `done`; a bad place or a misaligned buffer
    // is a bug (CHECK).
    virtual void start(Transfer transfer) = 0;

    // Makes every write that is complete durable on one path.
    virtual void sync(uint32_t path, Done done) = 0;
    // Writes the next commit's record over the older of the two. Not durable yet.
    virtual void record(const CommitRecord& record, Done done) = 0;
    // Makes the record durable: the commit is made.
    virtual void seal(Done done) = 0;
    // Erases the commits, durably: until the next one nothing is found after a crash. No transfer
    // of a durable place and no other move is under way.
    virtual void withdraw(Done done) = 0;

    // The newest commit that stands: what a start after a crash would find now. A move that failed
    // changes nothing of it: what a withdrawal may not have erased is still named. Any thread.
    virtual std::optional<CommitRecord> newest_commit() const = 0;

    virtual uint32_t path_count() const = 0;

    // The places, in the order of their ids.
    virtual const std::vector<PlaceSpec>& places() const = 0;
};

// Begins something and waits for its `done`; not from inside another one's. Below, what is waited
// for most.
Status wait_for(const std::function<void(Done)>& begin);

// One transfer.
Status transfer_and_wait(Store& store, Direction direction, PlaceId place,
                         std::span<std::byte> memory);

// Every path, one after the other.
Status sync_and_wait(Store& store);

// All of a commit, one move after the other. Nothing is in flight.
Status commit_and_wait(Store& store, const CommitRecord& record);

Status withdraw_and_wait(Store& store);

}  // namespace headrace::offload
