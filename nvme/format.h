// The map file of a store as FORMAT.md lays it out: structs whose offsets are asserted, and the two
// functions that turn a Placement into bytes and bytes into a checked Superblock. Values only: no
// file is opened here. Little-endian hosts only (asserted).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "nvme/placement.h"
#include "offload/result.h"
#include "offload/store.h"

namespace headrace::nvme {

static_assert(std::endian::native == std::endian::little, "FORMAT.md: little-endian");

inline constexpr uint32_t format_version = 1;
inline constexpr uint32_t layout_round_robin = 1;
inline constexpr uint64_t place_table_offset = 16384;
inline constexpr std::array<char, 8> store_magic = {'H', 'E', 'A', 'D', 'R', 'A', 'C', 'E'};

struct Superblock {
    std::array<char, 8> magic;
    uint32_t version;
    uint32_t layout;
    std::array<uint8_t, 16> uuid;
    uint32_t path_index;
    uint32_t path_count;
    uint64_t stripe_bytes;
    uint64_t place_count;
    uint64_t place_table_offset;
    uint64_t name_table_offset;
    uint64_t name_table_bytes;
    std::array<uint64_t, 2> generation_map_offset;
    uint64_t checksum_table_offset;
    uint64_t map_bytes;
    uint64_t data_bytes;
    uint64_t place_table_hash;
    uint32_t owner_pid;
    uint32_t pattern_count;
    std::array<char, 64> owner_host;
    std::array<char, 40> owner_boot_id;
    std::array<uint8_t, 16> reserved_0;
    std::array<uint8_t, pattern_slots_max> pattern;
    std::array<char, 64> run_name;
    std::array<uint8_t, 3512> reserved_1;
    uint64_t hash;  // of all bytes before it
};
static_assert(std::is_trivially_copyable_v<Superblock>);
static_assert(sizeof(Superblock) == 4096);
static_assert(offsetof(Superblock, uuid) == 16);
static_assert(offsetof(Superblock, stripe_bytes) == 40);
static_assert(offsetof(Superblock, generation_map_offset) == 80);
static_assert(offsetof(Superblock, place_table_hash) == 120);
static_assert(offsetof(Superblock, owner_host) == 136);
static_assert(offsetof(Superblock, owner_boot_id) == 200);
static_assert(offsetof(Superblock, pattern) == 256);
static_assert(offsetof(Superblock, run_name) == 512);
static_assert(offsetof(Superblock, hash) == 4088);

struct PlaceEntry {
    uint64_t size_bytes;
    std::array<uint64_t, 2> copy_offset;
    std::array<uint64_t, 2> copy_bytes;  // on this path
    uint32_t name_offset;
    uint16_t name_bytes;
    uint8_t copy_count;
    uint8_t reserved_0;
    std::array<uint32_t, 2> first_slot;
    uint64_t reserved_1;
};
static_assert(std::is_trivially_copyable_v<PlaceEntry>);
static_assert(sizeof(PlaceEntry) == 64);
static_assert(offsetof(PlaceEntry, name_offset) == 40);
static_assert(offsetof(PlaceEntry, copy_count) == 46);
static_assert(offsetof(PlaceEntry, first_slot) == 48);

// Who opens the store, for the message that a second opener gets.
struct Owner {
    uint32_t pid = 0;
    std::string host;
    std::string boot_id;
};

// The head of one path's map file: everything this version writes. The rest of the file, up to
// map_bytes, is zeros.
struct MapImage {
    Superblock superblock;          // goes to offset 0, last
    std::vector<std::byte> tables;  // place table and name table, padded; to place_table_offset
};

struct MapSpec {
    std::array<uint8_t, 16> uuid = {};
    uint32_t path_index = 0;
    std::string run_name;  // at most 63 bytes
    Owner owner;
};

MapImage make_map(const MapSpec& spec, const std::vector<offload::PlaceSpec>& places,
                  const Placement& placement);

// The bytes `make_map` will want for its file; free of the path.
uint64_t map_bytes_of(const std::vector<offload::PlaceSpec>& places);

// What the first page of a map file can be.
enum class FirstPage : uint8_t { zeros, store, foreign, newer };
FirstPage classify(std::span<const std::byte, 4096> page);

// The superblock of a page that classified as `store` (CHECK).
Superblock superblock_of(std::span<const std::byte, 4096> page);

// First broken invariant of a map, or null: hashes, offsets in order, pattern within the paths.
const char* find_fault(const MapImage& map);

}  // namespace headrace::nvme
