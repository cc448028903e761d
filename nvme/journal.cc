#include "nvme/journal.h"

#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::align_up;
using offload::page_bytes;
using offload::Status;

namespace {

constexpr uint32_t record_version = 2;
constexpr std::array<char, 8> commit_magic = {'H', 'R', 'C', 'O', 'M', 'M', 'I', 'T'};

struct RecordPage {
    std::array<char, 8> magic;
    uint32_t version;
    uint32_t area;
    Uuid uuid;
    uint64_t sequence;
    uint64_t attempts;
    uint64_t updates;
    double gradient_scale;
    uint64_t scale_steps;
    uint64_t place_count;
    uint64_t body_bytes;
    uint64_t body_hash;
    uint32_t numerics_bytes;
    uint32_t payload_bytes;
    std::array<uint8_t, 408> reserved_0;
    std::array<char, offload::numerics_bytes_max> numerics;
    std::array<char, offload::payload_bytes_max> payload;
    std::array<uint8_t, 504> reserved_1;
    uint64_t hash;  // of all bytes before it
};
static_assert(std::is_trivially_copyable_v<RecordPage>);
static_assert(sizeof(RecordPage) == page_bytes);
static_assert(offsetof(RecordPage, sequence) == 32);
static_assert(offsetof(RecordPage, place_count) == 72);
static_assert(offsetof(RecordPage, numerics_bytes) == 96);
static_assert(offsetof(RecordPage, numerics) == 512);
static_assert(offsetof(RecordPage, payload) == 1536);
static_assert(offsetof(RecordPage, hash) == 4088);

uint64_t generation_bytes_of(uint64_t place_count) {
    return align_up(offload::div_ceil(place_count, 4), sizeof(uint64_t));
}

uint64_t body_bytes_of(uint64_t place_count) {
    return generation_bytes_of(place_count) + place_count * sizeof(uint64_t);
}

uint64_t hash_of(const RecordPage& page) {
    return XXH3_64bits(&page, offsetof(RecordPage, hash));
}

RecordPage page_of(std::span<const std::byte> area) {
    CHECK_GE(area.size(), sizeof(RecordPage));
    RecordPage page;
    std::memcpy(&page, area.data(), sizeof(page));
    return page;
}

// Whether a second commit of these would tell nothing new.
bool is_same(const Commit& commit, const offload::CommitRecord& record,
             const std::vector<PlaceTruth>& places) {
    return commit.record.attempts == record.attempts && commit.record.updates == record.updates &&
           commit.places == places;
}

}  // namespace

uint64_t commit_area_bytes_of(uint64_t durable_place_count) {
    return sizeof(RecordPage) + align_up(body_bytes_of(durable_place_count), page_bytes);
}

void encode(const Commit& commit, const AreaId& id, std::span<std::byte> area) {
    const offload::CommitRecord& record = commit.record;
    CHECK_EQ(commit.places.size(), id.place_count);
    CHECK_LT(id.area, 2u);
    CHECK_LE(record.numerics.size(), offload::numerics_bytes_max);
    CHECK_LE(record.payload.size(), offload::payload_bytes_max);
    CHECK_EQ(area.size(), commit_area_bytes_of(id.place_count));
    std::ranges::fill(area, std::byte{0});
    std::byte* generations = area.data() + sizeof(RecordPage);
    std::byte* sums = generations + generation_bytes_of(id.place_count);
    for (size_t place = 0; place < commit.places.size(); place++) {
        const PlaceTruth& truth = commit.places[place];
        CHECK_LT(truth.copy, 2);
        CHECK(truth.is_written || (truth.copy == 0 && truth.sum == 0));
        const unsigned bits = (truth.is_written ? 1u : 0u) | (truth.copy == 1 ? 2u : 0u);
        generations[place / 4] |= std::byte{static_cast<uint8_t>(bits << (place % 4 * 2))};
        std::memcpy(sums + place * sizeof(truth.sum), &truth.sum, sizeof(truth.sum));
    }
    RecordPage page{};
    page.magic = commit_magic;
    page.version = record_version;
    page.area = id.area;
    page.uuid = id.uuid;
    page.sequence = commit.sequence;
    page.attempts = record.attempts;
    page.updates = record.updates;
    page.gradient_scale = record.gradient_scale;
    page.scale_steps = record.scale_steps;
    page.place_count = id.place_count;
    page.body_bytes = body_bytes_of(id.place_count);
    page.body_hash = XXH3_64bits(generations, page.body_bytes);
    page.numerics_bytes = static_cast<uint32_t>(record.numerics.size());
    page.payload_bytes = static_cast<uint32_t>(record.payload.size());
    std::ranges::copy(record.numerics, page.numerics.begin());
    std::ranges::copy(record.payload, page.payload.begin());
    page.hash = hash_of(page);
    std::memcpy(area.data(), &page, sizeof(page));
    CHECK(find_fault(area, id) == nullptr);
}

const char* find_fault(std::span<const std::byte> area, const AreaId& id) {
    if (area.size() != commit_area_bytes_of(id.place_count)) return "the area has another size";
    const RecordPage page = page_of(area);
    if (page.magic != commit_magic) return "there is no record";
    if (page.hash != hash_of(page)) return "the record is torn";
    if (page.version != record_version) return "the record has another version";
    if (page.uuid != id.uuid) return "the record is another store's";
    if (page.area != id.area) return "the record belongs in the other area";
    if (page.place_count != id.place_count) return "the record counts other places";
    if (page.body_bytes != body_bytes_of(id.place_count)) return "the body has another size";
    if (page.numerics_bytes > page.numerics.size()) return "the numerics record is too long";
    if (page.payload_bytes > page.payload.size()) return "the payload is too long";
    if (page.sequence == 0) return "the record has no sequence";
    if (page.body_hash != XXH3_64bits(area.data() + sizeof(page), page.body_bytes)) {
        return "the body is torn";
    }
    return nullptr;
}

Commit decode(std::span<const std::byte> area, const AreaId& id) {
    CHECK(find_fault(area, id) == nullptr);
    const RecordPage page = page_of(area);
    Commit commit{.sequence = page.sequence,
                  .record = {.attempts = page.attempts,
                             .updates = page.updates,
                             .gradient_scale = page.gradient_scale,
                             .scale_steps = page.scale_steps,
                             .numerics = std::string(page.numerics.data(), page.numerics_bytes),
                             .payload = std::string(page.payload.data(), page.payload_bytes)},
                  .places = std::vector<PlaceTruth>(id.place_count)};
    const std::byte* generations = area.data() + sizeof(page);
    const std::byte* sums = generations + generation_bytes_of(id.place_count);
    for (size_t place = 0; place < id.place_count; place++) {
        const auto bits = static_cast<unsigned>(generations[place / 4] >> (place % 4 * 2));
        PlaceTruth& truth = commit.places[place];
        truth.is_written = (bits & 1) != 0;
        truth.copy = (bits & 2) != 0 ? 1 : 0;
        std::memcpy(&truth.sum, sums + place * sizeof(truth.sum), sizeof(truth.sum));
    }
    return commit;
}

Journal::Journal(const DirectFile& map, const Superblock& superblock)
    : map_(&map), superblock_(superblock), area_(superblock.commit_area_bytes) {
    CHECK_EQ(superblock.path_index, 0u);
    CHECK_EQ(superblock.commit_area_bytes, commit_area_bytes_of(superblock.place_count));
}

AreaId Journal::id_of(uint32_t area) const {
    return {.uuid = superblock_.uuid, .area = area, .place_count = superblock_.place_count};
}

Status Journal::read() {
    CHECK(!newest_.has_value());
    CHECK(!recorded_.has_value());
    for (const uint32_t area : {0u, 1u}) {
        if (Status status = map_->read_exact(offset_of(area), area_); !status) return status;
        if (find_fault(area_, id_of(area)) != nullptr) continue;
        Commit found = decode(area_, id_of(area));
        if (newest_ && newest_->sequence > found.sequence) {
            older_ = std::move(found);
            continue;
        }
        older_ = std::exchange(newest_, std::move(found));
        newest_area_ = area;
    }
    return {};
}

Status Journal::record(const offload::CommitRecord& record, const std::vector<PlaceTruth>& places) {
    CHECK(!recorded_.has_value());
    CHECK(!is_same_);
    CHECK(!has_failed_);
    if (newest_ && nvme::is_same(*newest_, record, places)) {
        is_same_ = true;
        return {};
    }
    const uint32_t area = 1 - newest_area_;
    spare_.sequence = newest_ ? newest_->sequence + 1 : first_sequence;
    spare_.record = record;
    spare_.places = places;
    recorded_ = std::move(spare_);
    encode(*recorded_, id_of(area), area_);
    Status status = map_->write_exact(offset_of(area), area_);
    has_failed_ = !status.ok();
    return status;
}

Status Journal::seal() {
    CHECK(!has_failed_);
    if (std::exchange(is_same_, false)) return {};
    CHECK(recorded_.has_value());
    Status status = map_->flush();
    has_failed_ = !status.ok();
    if (!status.ok()) return status;
    if (older_) spare_ = std::move(*older_);
    older_ = std::exchange(newest_, std::exchange(recorded_, std::nullopt));
    newest_area_ = 1 - newest_area_;
    CHECK(!older_ || older_->sequence < newest_->sequence);
    return {};
}

Status Journal::erase(uint32_t area) {
    CHECK(!recorded_.has_value());
    CHECK(!has_failed_);
    const Page zeros{};
    Status status = map_->write_exact(offset_of(area), zeros);
    if (status.ok()) status = map_->flush();
    has_failed_ = !status.ok();
    return status;
}

Status Journal::forget_all() {
    if (older_) {
        if (Status status = erase(1 - newest_area_); !status) return status;
        older_.reset();
    }
    return newest_ ? forget_newest() : Status{};
}

Status Journal::forget_newest() {
    CHECK(newest_.has_value());
    if (Status status = erase(newest_area_); !status) return status;
    newest_ = std::exchange(older_, std::nullopt);
    newest_area_ = 1 - newest_area_;
    return {};
}

}  // namespace headrace::nvme
