// Journal: the two commit areas of a store's map (FORMAT.md, commit area). A commit says of every
// durable place whether it was written, which of its copies is the truth and what that copy's sum
// is, and of the run what a CommitRecord holds. Encoding, decoding and judging are pure; the class
// below does the I/O. It never writes over the newest commit, and it believes only what a flush
// made durable: an error of a write or a flush is final, nothing is tried again.
//
// One thread at a time (the store's first chore thread); calls block. The file outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nvme/direct_file.h"
#include "nvme/format.h"
#include "offload/result.h"
#include "offload/store.h"

namespace headrace::nvme {

// Of one durable place, in a commit.
struct PlaceTruth {
    bool is_written = false;  // the rest is 0 if not: it reads as zeros
    uint8_t copy = 0;
    uint64_t sum = 0;  // page_sum of the whole copy
    bool operator==(const PlaceTruth&) const = default;
};

struct Commit {
    uint64_t sequence = 0;
    offload::CommitRecord record = {};
    std::vector<PlaceTruth> places = {};  // durable ones, in order
    bool operator==(const Commit&) const = default;
};

// One commit of one store: what a look at it told of (store_facts.h), and an open can insist on.
struct CommitId {
    Uuid uuid = {};
    uint64_t sequence = 0;
    bool operator==(const CommitId&) const = default;
};
inline constexpr uint64_t first_sequence = 1;

// Record page and body, whole pages. Grows by about 8 bytes per place.
uint64_t commit_area_bytes_of(uint64_t durable_place_count);

// Where an area belongs: a commit found elsewhere is none.
struct AreaId {
    Uuid uuid = {};
    uint32_t area = 0;  // 0 or 1
    uint64_t place_count = 0;
};

// Fills an area, all commit_area_bytes_of(place_count) of it (CHECK). CHECKs the sizes of the
// record's texts.
void encode(const Commit& commit, const AreaId& id, std::span<std::byte> area);

// Why an area holds no commit of this store, or null: empty, torn, foreign.
const char* find_fault(std::span<const std::byte> area, const AreaId& id);

// The commit of an area without a fault (CHECK).
Commit decode(std::span<const std::byte> area, const AreaId& id);

class Journal {
  public:
    // Of a store without a commit, and of one whose areas are read now, from the drive and not from
    // the page cache. Areas that hold no commit are passed over: each may be torn.
    Journal(const DirectFile& map, const Superblock& superblock);
    offload::Status read();

    const Uuid& uuid() const { return superblock_.uuid; }
    const std::optional<Commit>& newest() const { return newest_; }
    const std::optional<Commit>& older() const { return older_; }

    // The next commit into the area of the older one. If the newest says the same step and the same
    // places, nothing is written, and the seal that follows does nothing.
    // Allocates nothing from the third commit on, if the record's texts do not grow.
    offload::Status record(const offload::CommitRecord& record,
                           const std::vector<PlaceTruth>& places);

    // Makes what was recorded durable (CHECK: something was); it is the newest commit now.
    offload::Status seal();

    // Erases the newest commit, durably (CHECK: there is one): the older one, if there is one, is
    // the newest from here on.
    offload::Status forget_newest();

    // Erases both commits, the older one first.
    offload::Status forget_all();

  private:
    offload::Status erase(uint32_t area);
    uint64_t offset_of(uint32_t area) const { return superblock_.commit_area_offset[area]; }
    AreaId id_of(uint32_t area) const;

    const DirectFile* map_;
    Superblock superblock_;
    std::optional<Commit> newest_;
    std::optional<Commit> older_;
    uint32_t newest_area_ = 1;        // so that the first commit goes to area 0
    std::optional<Commit> recorded_;  // and not sealed
    Commit spare_;                    // one of the past: its memory is the next one's
    std::vector<std::byte> area_;     // as read or to be written
    bool is_same_ = false;            // the record that was the newest's over again
    bool has_failed_ = false;
};

}  // namespace headrace::nvme
