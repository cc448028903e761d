#include "nvme/format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::align_up;
using offload::page_bytes;

namespace {

struct MapLayout {
    uint64_t name_table_offset;
    uint64_t name_table_bytes;
    std::array<uint64_t, 2> generation_map_offset;
    uint64_t checksum_table_offset;
    uint64_t map_bytes;
};

MapLayout layout_of(const std::vector<offload::PlaceSpec>& places) {
    MapLayout layout{};
    for (const offload::PlaceSpec& place : places) layout.name_table_bytes += place.name.size();
    const uint64_t generation_bytes = align_up(offload::div_ceil(places.size(), 4), page_bytes);
    layout.name_table_offset =
        place_table_offset + align_up(places.size() * sizeof(PlaceEntry), page_bytes);
    layout.generation_map_offset[0] =
        layout.name_table_offset + align_up(layout.name_table_bytes, page_bytes);
    layout.generation_map_offset[1] = layout.generation_map_offset[0] + generation_bytes;
    layout.checksum_table_offset = layout.generation_map_offset[1] + generation_bytes;
    layout.map_bytes = layout.checksum_table_offset + align_up(32 * places.size(), page_bytes);
    return layout;
}

template <size_t capacity>
void put_text(std::array<char, capacity>& target, const std::string& text) {
    const size_t text_bytes = std::min(text.size(), capacity - 1);
    std::memcpy(target.data(), text.data(), text_bytes);
    CHECK_EQ(target[capacity - 1], '\0');
}

uint64_t hash_of(const Superblock& superblock) {
    return XXH3_64bits(&superblock, offsetof(Superblock, hash));
}

uint64_t table_hash_of(const MapImage& map) {
    const Superblock& head = map.superblock;
    XXH3_state_t* state = XXH3_createState();
    CHECK(state != nullptr);
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, map.tables.data(), head.place_count * sizeof(PlaceEntry));
    XXH3_64bits_update(state, map.tables.data() + (head.name_table_offset - place_table_offset),
                       head.name_table_bytes);
    const uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

PlaceEntry entry_of(const offload::PlaceSpec& place, const std::vector<CopyExtent>& copies,
                    uint32_t path) {
    PlaceEntry entry{};
    entry.size_bytes = place.size_bytes;
    entry.copy_count = place.copy_count;
    CHECK_EQ(copies.size(), place.copy_count);
    for (size_t copy = 0; copy < copies.size(); copy++) {
        entry.copy_offset[copy] = copies[copy].offset_bytes[path];
        entry.copy_bytes[copy] = copies[copy].size_bytes[path];
        entry.first_slot[copy] = copies[copy].first_slot;
    }
    return entry;
}

}  // namespace

MapImage make_map(const MapSpec& spec, const std::vector<offload::PlaceSpec>& places,
                  const Placement& placement) {
    CHECK_EQ(places.size(), placement.copies.size());
    CHECK_LT(spec.path_index, placement.path_bytes.size());
    CHECK_LT(spec.run_name.size(), 64u);
    const MapLayout layout = layout_of(places);
    MapImage map{};
    Superblock& head = map.superblock;
    head.magic = store_magic;
    head.version = format_version;
    head.layout = layout_round_robin;
    head.uuid = spec.uuid;
    head.path_index = spec.path_index;
    head.path_count = static_cast<uint32_t>(placement.path_bytes.size());
    head.stripe_bytes = placement.stripe_bytes;
    head.place_count = places.size();
    head.place_table_offset = place_table_offset;
    head.name_table_offset = layout.name_table_offset;
    head.name_table_bytes = layout.name_table_bytes;
    head.generation_map_offset = layout.generation_map_offset;
    head.checksum_table_offset = layout.checksum_table_offset;
    head.map_bytes = layout.map_bytes;
    head.data_bytes = placement.path_bytes[spec.path_index];
    head.owner_pid = spec.owner.pid;
    put_text(head.owner_host, spec.owner.host);
    put_text(head.owner_boot_id, spec.owner.boot_id);
    put_text(head.run_name, spec.run_name);
    head.pattern_count = static_cast<uint32_t>(placement.pattern.size());
    std::ranges::transform(placement.pattern, head.pattern.begin(),
                           [](uint32_t path) { return static_cast<uint8_t>(path); });

    map.tables.resize(layout.generation_map_offset[0] - place_table_offset);
    uint64_t name_offset = 0;
    for (size_t place = 0; place < places.size(); place++) {
        const std::string& name = places[place].name;
        PlaceEntry entry = entry_of(places[place], placement.copies[place], spec.path_index);
        entry.name_offset = static_cast<uint32_t>(name_offset);
        entry.name_bytes = static_cast<uint16_t>(name.size());
        CHECK_EQ(entry.name_bytes, name.size());
        std::memcpy(map.tables.data() + place * sizeof(entry), &entry, sizeof(entry));
        std::memcpy(
            map.tables.data() + (layout.name_table_offset - place_table_offset) + name_offset,
            name.data(), name.size());
        name_offset += name.size();
    }
    head.place_table_hash = table_hash_of(map);
    head.hash = hash_of(head);
    CHECK(find_fault(map) == nullptr);
    return map;
}

uint64_t map_bytes_of(const std::vector<offload::PlaceSpec>& places) {
    return layout_of(places).map_bytes;
}

FirstPage classify(std::span<const std::byte, 4096> page) {
    if (std::ranges::all_of(page, [](std::byte byte) { return byte == std::byte{0}; })) {
        return FirstPage::zeros;
    }
    Superblock head;
    std::memcpy(&head, page.data(), sizeof(head));
    if (head.magic != store_magic) return FirstPage::foreign;
    if (head.version > format_version) return FirstPage::newer;
    return head.hash == hash_of(head) ? FirstPage::store : FirstPage::foreign;
}

Superblock superblock_of(std::span<const std::byte, 4096> page) {
    CHECK_EQ(classify(page), FirstPage::store);
    Superblock head;
    std::memcpy(&head, page.data(), sizeof(head));
    return head;
}

const char* find_fault(const MapImage& map) {
    const Superblock& head = map.superblock;
    if (head.magic != store_magic) return "the magic is wrong";
    if (head.hash != hash_of(head)) return "the superblock does not fit its hash";
    if (head.path_index >= head.path_count) return "the path index is not below the path count";
    if (head.pattern_count == 0 || head.pattern_count > head.pattern.size()) {
        return "the pattern's length is out of range";
    }
    for (uint32_t slot = 0; slot < head.pattern_count; slot++) {
        if (head.pattern[slot] >= head.path_count) return "a slot names a path that does not exist";
    }
    const std::array<uint64_t, 6> offsets = {
        head.place_table_offset,       head.name_table_offset,     head.generation_map_offset[0],
        head.generation_map_offset[1], head.checksum_table_offset, head.map_bytes};
    if (!std::ranges::is_sorted(offsets)) return "the tables are not in order";
    if (map.tables.size() != head.generation_map_offset[0] - place_table_offset) {
        return "the tables are cut short";
    }
    if (head.place_table_hash != table_hash_of(map)) return "the tables do not fit their hash";
    return nullptr;
}

}  // namespace headrace::nvme
