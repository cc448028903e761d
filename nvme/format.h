// What of a store's map file is written once, and the owner's and notice pages, as FORMAT.md lays
// them out: structs whose offsets are asserted, and the functions between them and plain values. No
// file is opened here. Little-endian hosts only (asserted). Commits: journal.h.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "nvme/placement.h"
#include "offload/result.h"
#include "offload/store.h"

namespace headrace::nvme {

static_assert(std::endian::native == std::endian::little, "FORMAT.md: little-endian");

inline constexpr uint32_t format_version = 3;
inline constexpr uint32_t oldest_version = 2;  // that is read: durable places have two copies in it
inline constexpr uint32_t layout_round_robin = 1;
inline constexpr uint64_t owner_page_offset = 4096;
inline constexpr uint64_t notice_page_offset = 8192;
inline constexpr uint64_t path_table_offset = 16384;
inline constexpr uint64_t path_table_bytes = 16384;
inline constexpr uint64_t predecessor_table_offset = path_table_offset + path_table_bytes;
inline constexpr uint64_t place_table_offset = predecessor_table_offset + path_table_bytes;
inline constexpr std::array<char, 8> store_magic = {'H', 'E', 'A', 'D', 'R', 'A', 'C', 'E'};
inline constexpr std::array<char, 8> owner_magic = {'H', 'R', 'O', 'W', 'N', 'E', 'R', '1'};
inline constexpr std::array<char, 8> notice_magic = {'H', 'R', 'M', 'O', 'V', 'E', 'D', '1'};

using Uuid = std::array<uint8_t, 16>;
using Page = std::array<std::byte, 4096>;

struct Superblock {
    std::array<char, 8> magic;
    uint32_t version;
    uint32_t layout;
    Uuid uuid;
    uint32_t path_index;
    uint32_t path_count;
    uint64_t stripe_bytes;
    uint64_t place_count;
    uint64_t place_table_offset;
    uint64_t name_table_offset;
    uint64_t name_table_bytes;
    std::array<uint64_t, 2> commit_area_offset;
    uint64_t commit_area_bytes;
    uint64_t map_bytes;
    uint64_t data_bytes;  // of durable places
    uint64_t table_hash;
    uint32_t pattern_count;
    uint32_t predecessor_path_count;
    Uuid predecessor_uuid;
    uint32_t copy_count;  // of each durable place
    std::array<uint8_t, 100> reserved_0;
    std::array<uint8_t, pattern_slots_max> pattern;
    std::array<char, 64> run_name;
    std::array<uint8_t, 3512> reserved_1;
    uint64_t hash;  // of all bytes before it
};
static_assert(std::is_trivially_copyable_v<Superblock>);
static_assert(sizeof(Superblock) == 4096);
static_assert(offsetof(Superblock, uuid) == 16);
static_assert(offsetof(Superblock, stripe_bytes) == 40);
static_assert(offsetof(Superblock, commit_area_offset) == 80);
static_assert(offsetof(Superblock, table_hash) == 120);
static_assert(offsetof(Superblock, predecessor_uuid) == 136);
static_assert(offsetof(Superblock, copy_count) == 152);
static_assert(offsetof(Superblock, pattern) == 256);
static_assert(offsetof(Superblock, run_name) == 512);
static_assert(offsetof(Superblock, hash) == 4088);

struct OwnerPage {
    std::array<char, 8> magic;
    uint32_t pid;
    uint32_t reserved_0;
    std::array<char, 64> host;
    std::array<char, 40> boot_id;
    std::array<uint8_t, 3968> reserved_1;
    uint64_t hash;
};
static_assert(std::is_trivially_copyable_v<OwnerPage>);
static_assert(sizeof(OwnerPage) == 4096);
static_assert(offsetof(OwnerPage, host) == 16);
static_assert(offsetof(OwnerPage, boot_id) == 80);
static_assert(offsetof(OwnerPage, hash) == 4088);

struct NoticePage {
    std::array<char, 8> magic;
    Uuid successor_uuid;
    uint32_t path_bytes;
    uint32_t reserved_0;
    std::array<char, 4000> path;
    std::array<uint8_t, 56> reserved_1;
    uint64_t hash;
};
static_assert(std::is_trivially_copyable_v<NoticePage>);
static_assert(sizeof(NoticePage) == 4096);
static_assert(offsetof(NoticePage, path) == 32);
static_assert(offsetof(NoticePage, hash) == 4088);

struct PlaceEntry {
    uint64_t size_bytes;
    std::array<uint64_t, 2> copy_offset;
    std::array<uint64_t, 2> copy_bytes;  // on this path
    uint32_t name_offset;
    uint16_t name_bytes;
    uint16_t reserved_0;
    std::array<uint32_t, 2> first_slot;
    uint64_t reserved_1;
};
static_assert(std::is_trivially_copyable_v<PlaceEntry>);
static_assert(sizeof(PlaceEntry) == 64);
static_assert(offsetof(PlaceEntry, name_offset) == 40);
static_assert(offsetof(PlaceEntry, first_slot) == 48);

// Who opened the store last, for the message that a second opener gets.
struct Owner {
    uint32_t pid = 0;  // 0: not known
    std::string host = {};
    std::string boot_id = {};
    bool operator==(const Owner&) const = default;
};

// Which store a successor succeeds; none: an empty list.
struct Predecessor {
    Uuid uuid = {};
    std::vector<std::string> paths = {};  // absolute, in index order
    bool operator==(const Predecessor&) const = default;
};

// What of one path's map is written once. The commit areas behind it are journal.h's.
struct MapImage {
    Superblock superblock;          // goes to offset 0, last
    std::vector<std::byte> tables;  // paths, places, names, padded; to path_table_offset
};

struct MapSpec {
    Uuid uuid = {};
    uint32_t path_index = 0;
    std::string run_name = {};            // at most 63 bytes
    std::vector<std::string> paths = {};  // absolute, in index order; check_path_table
    Predecessor predecessor = {};
};

// Of the durable places, all of which have as many copies (CHECK), and of their placement.
MapImage make_map(const MapSpec& spec, const std::vector<offload::PlaceSpec>& durable_places,
                  const Placement& placement);

// The bytes `make_map` will want for its file; free of the path.
uint64_t map_bytes_of(const std::vector<offload::PlaceSpec>& durable_places);

// Whether paths fit their table: a usage Error if they are too long.
offload::Status check_path_table(const std::vector<std::string>& paths);

// What the first page of a map file can be. unfinished: zeros, or a superblock of which a crash
// kept some of the sectors.
enum class FirstPage : uint8_t { unfinished, store, older, newer, foreign };
FirstPage classify(std::span<const std::byte, 4096> page);

// The superblock of a page that classified as `store` (CHECK).
Superblock superblock_of(std::span<const std::byte, 4096> page);

// First broken invariant of a map, or null: hashes, offsets in order, pattern within the paths,
// places where the striping rule puts them.
const char* find_fault(const MapImage& map);

// What a map without a fault (CHECK) says.
std::vector<offload::PlaceSpec> places_of(const MapImage& map);
std::vector<uint32_t> pattern_of(const Superblock& superblock);
std::vector<std::string> paths_of(const MapImage& map);
Predecessor predecessor_of(const MapImage& map);

Page owner_page_of(const Owner& owner);
Owner owner_of(std::span<const std::byte, 4096> page);  // pid 0 if the page is torn or empty

// A store's word that `path` (absolute, of a length that fits: CHECK) holds its successor.
struct Notice {
    Uuid successor_uuid = {};
    std::string path = {};
    bool operator==(const Notice&) const = default;
};
Page notice_page_of(const Notice& notice);
std::optional<Notice> notice_of(std::span<const std::byte, 4096> page);

}  // namespace headrace::nvme
