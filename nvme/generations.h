// Generations: what a store knows of its places: which copy is the truth, how much of each copy was
// written and with what sum, who reads or writes now, and what the commits hold. It decides which
// copy a write goes to. Pure; the store holds its lock around every call.
//
// A write of a place of two copies never goes to the copy that the newest commit names: so between
// two commits a place may be written any number of times. (The second such write goes over the
// first; if it fails, the place holds neither, which the sum tells at the next read.) A durable
// place of one copy is written in place, and never while a commit names it (CHECK). A place that a
// commit finds written must have been written whole.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "nvme/journal.h"
#include "offload/result.h"
#include "offload/store.h"

namespace headrace::nvme {

class Generations {
  public:
    Generations(const std::vector<offload::PlaceSpec>& places, uint32_t path_count);

    // All as a commit says it, to be verified at the first read. Nothing is in flight (CHECK).
    void restore(const Commit& commit);

    // A read of a place's first size_bytes. Overlapping a write is a bug (CHECK), as below.
    struct Reading {
        uint8_t copy = 0;
        uint64_t size_bytes = 0;      // to be read; what is beyond, up to the wish, is zeros
        std::optional<uint64_t> sum;  // what the bytes must sum to; none: nothing to verify
    };
    Reading begin_read(offload::PlaceId place, uint64_t size_bytes);
    void end_read(offload::PlaceId place, bool is_verified);

    struct Writing {
        uint8_t copy = 0;
        uint64_t size_bytes = 0;
        uint64_t sum = 0;  // of durable places
    };
    uint8_t begin_write(offload::PlaceId place);
    void end_write(offload::PlaceId place, const Writing& writing, bool is_good);

    // The moves of a commit. A sync covers the writes that had ended when it began; a record finds
    // every write of a durable place covered on every path, and none in flight until the seal is
    // done (CHECK).
    uint64_t begin_sync() const { return write_count_; }
    void end_sync(uint32_t path, uint64_t begun_at);
    // Valid until the next record begins.
    const std::vector<PlaceTruth>& begin_record();
    void end_seal();

    // No commit names anything any more. None is being made, and no durable place is written
    // (CHECK).
    void withdraw();

    // After a move failed no commit can be made: what it left on the drives is not known.
    void fail(const offload::Error& error);
    const std::optional<offload::Error>& fault() const { return fault_; }

    // Ids of the durable places, in the order in which commits speak of them.
    const std::vector<offload::PlaceId>& durable() const { return durable_; }

  private:
    struct State {
        uint64_t size_bytes = 0;
        offload::Copies copies = offload::Copies::scratch;
        uint8_t truth = 0;
        std::array<uint64_t, 2> written_bytes = {0, 0};  // 0: reads as zeros
        std::array<uint64_t, 2> sum = {0, 0};
        std::optional<uint8_t> sealed_copy = {};  // that the newest commit names
        bool is_unverified = false;               // the truth may not be what its sum says
        uint32_t readers = 0;
        uint32_t writers = 0;
    };
    PlaceTruth truth_of(const State& state) const;

    std::vector<State> states_;
    std::vector<offload::PlaceId> durable_;
    std::vector<PlaceTruth> truths_;   // of durable_, as the last record said
    uint64_t write_count_ = 0;         // of durable places, ended
    uint64_t writes_in_flight_ = 0;    // of durable places
    std::vector<uint64_t> synced_to_;  // per path: the write_count_ that is durable
    bool is_recording_ = false;        // between record and the end of seal
    std::optional<offload::Error> fault_;
};

}  // namespace headrace::nvme
