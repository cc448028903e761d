#include "nvme/format.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "nvme/journal.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::align_up;
using offload::Copies;
using offload::page_bytes;

namespace {

struct MapLayout {
    uint64_t name_table_offset;
    uint64_t name_table_bytes;
    std::array<uint64_t, 2> commit_area_offset;
    uint64_t commit_area_bytes;
    uint64_t map_bytes;
};

MapLayout layout_of(const std::vector<offload::PlaceSpec>& places) {
    MapLayout layout{};
    for (const offload::PlaceSpec& place : places) layout.name_table_bytes += place.name.size();
    layout.name_table_offset =
        place_table_offset + align_up(places.size() * sizeof(PlaceEntry), page_bytes);
    layout.commit_area_bytes = commit_area_bytes_of(places.size());
    layout.commit_area_offset[0] =
        layout.name_table_offset + align_up(layout.name_table_bytes, page_bytes);
    layout.commit_area_offset[1] = layout.commit_area_offset[0] + layout.commit_area_bytes;
    layout.map_bytes = layout.commit_area_offset[1] + layout.commit_area_bytes;
    return layout;
}

template <size_t capacity>
void put_text(std::array<char, capacity>& target, const std::string& text) {
    const size_t text_bytes = std::min(text.size(), capacity - 1);
    std::memcpy(target.data(), text.data(), text_bytes);
    CHECK_EQ(target[capacity - 1], '\0');
}

template <typename PageStruct>
uint64_t hash_of(const PageStruct& page) {
    static_assert(sizeof(PageStruct) == page_bytes);
    static_assert(offsetof(PageStruct, hash) == page_bytes - sizeof(uint64_t));
    return XXH3_64bits(&page, offsetof(PageStruct, hash));
}

template <typename PageStruct>
PageStruct struct_of(std::span<const std::byte, 4096> page) {
    PageStruct result;
    std::memcpy(&result, page.data(), sizeof(result));
    return result;
}

template <typename PageStruct>
Page page_of(PageStruct content) {
    content.hash = hash_of(content);
    Page page;
    std::memcpy(page.data(), &content, sizeof(content));
    return page;
}

uint64_t table_hash_of(const MapImage& map) {
    return XXH3_64bits(map.tables.data(), map.tables.size());
}

// Each followed by a zero.
std::string joined(const std::vector<std::string>& paths) {
    std::string text;
    for (const std::string& path : paths) text += path + '\0';
    return text;
}

std::vector<std::string> split_paths(std::span<const std::byte> table, uint32_t path_count) {
    const std::string_view text(reinterpret_cast<const char*>(table.data()), table.size());
    std::vector<std::string> paths;
    size_t begin = 0;
    for (uint32_t path = 0; path < path_count; path++) {
        const size_t end = std::min(text.find('\0', begin), text.size());
        paths.emplace_back(text.substr(begin, end - begin));
        begin = std::min(end + 1, text.size());
    }
    return paths;
}

PlaceEntry entry_of(const offload::PlaceSpec& place, const std::vector<CopyExtent>& copies,
                    uint32_t path) {
    PlaceEntry entry{};
    entry.size_bytes = place.size_bytes;
    CHECK_LE(copies.size(), entry.copy_offset.size());
    for (size_t copy = 0; copy < copies.size(); copy++) {
        entry.copy_offset[copy] = copies[copy].offset_bytes[path];
        entry.copy_bytes[copy] = copies[copy].size_bytes[path];
        entry.first_slot[copy] = copies[copy].first_slot;
    }
    return entry;
}

std::vector<PlaceEntry> entries_of(const MapImage& map) {
    std::vector<PlaceEntry> entries(map.superblock.place_count);
    if (entries.empty()) return entries;
    std::memcpy(entries.data(), map.tables.data() + (place_table_offset - path_table_offset),
                entries.size() * sizeof(PlaceEntry));
    return entries;
}

// Place and name table, behind the path tables.
void put_places(MapImage& map, const std::vector<offload::PlaceSpec>& places,
                const Placement& placement) {
    const Superblock& head = map.superblock;
    std::byte* entries = map.tables.data() + (place_table_offset - path_table_offset);
    std::byte* names = map.tables.data() + (head.name_table_offset - path_table_offset);
    uint64_t name_offset = 0;
    for (size_t place = 0; place < places.size(); place++) {
        CHECK_EQ(count_of(places[place].copies), head.copy_count);
        const std::string& name = places[place].name;
        PlaceEntry entry = entry_of(places[place], placement.copies[place], head.path_index);
        entry.name_offset = static_cast<uint32_t>(name_offset);
        entry.name_bytes = static_cast<uint16_t>(name.size());
        CHECK_EQ(entry.name_bytes, name.size());
        std::memcpy(entries + place * sizeof(entry), &entry, sizeof(entry));
        std::memcpy(names + name_offset, name.data(), name.size());
        name_offset += name.size();
    }
    CHECK_EQ(name_offset, head.name_table_bytes);
}

const char* find_superblock_fault(const Superblock& head) {
    if (head.magic != store_magic) return "the magic is wrong";
    if (head.version != format_version && head.version != oldest_version) {
        return "the version is another";
    }
    if (head.hash != hash_of(head)) return "the superblock does not fit its hash";
    if (head.version == format_version && (head.copy_count < 1 || head.copy_count > 2)) {
        return "places have neither one copy nor two";
    }
    if (head.layout != layout_round_robin) return "the striping rule is not known";
    if (head.path_index >= head.path_count) return "the path index is not below the path count";
    if (head.path_count > path_count_max) return "there are more paths than can be";
    if (head.predecessor_path_count > path_count_max) return "the predecessor has too many paths";
    if (head.pattern_count == 0 || head.pattern_count > head.pattern.size()) {
        return "the pattern's length is out of range";
    }
    const std::vector<uint32_t> pattern = pattern_of(head);
    for (const uint32_t path : pattern) {
        if (path >= head.path_count) return "a slot names a path that does not exist";
    }
    for (uint32_t path = 0; path < head.path_count; path++) {
        if (std::ranges::count(pattern, path) == 0) return "a path has no slot";
    }
    if (head.stripe_bytes == 0 || head.stripe_bytes % page_bytes != 0) {
        return "the stripe is not a multiple of the page";
    }
    const std::array<uint64_t, 5> offsets = {head.place_table_offset, head.name_table_offset,
                                             head.commit_area_offset[0], head.commit_area_offset[1],
                                             head.map_bytes};
    if (!std::ranges::is_sorted(offsets)) return "the tables are not in order";
    if (head.place_table_offset != place_table_offset) return "the place table is not in its place";
    if (head.commit_area_bytes != commit_area_bytes_of(head.place_count)) {
        return "a commit area has the wrong size";
    }
    return nullptr;
}

bool is_zeros(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// A superblock is written once, over zeros, and drives write whole sectors. Three of its sectors
// are never zeros: the first, the name's and the hash's. One that lacks any of them, and holds
// nothing that a superblock does not, was torn in the making: there was no commit yet.
bool is_unfinished(std::span<const std::byte, 4096> page) {
    constexpr size_t sector_bytes = 512;
    static_assert(offsetof(Superblock, run_name) == sector_bytes);
    const auto sector = [&](size_t i) {
        return std::span<const std::byte>(page).subspan(i * sector_bytes, sector_bytes);
    };
    const bool is_headless = is_zeros(sector(0));
    if (!is_headless && !is_zeros(sector(1)) && !is_zeros(sector(7))) return false;
    const auto head = struct_of<Superblock>(page);
    const bool is_known = head.version >= oldest_version && head.version <= format_version;
    if (!is_headless && (head.magic != store_magic || !is_known)) return false;
    return is_zeros(std::as_bytes(std::span(head.reserved_1)));
}

// The places themselves: sizes, names, and that they lie where the striping rule puts them.
const char* find_place_fault(const MapImage& map) {
    const Superblock& head = map.superblock;
    const std::vector<PlaceEntry> entries = entries_of(map);
    for (const PlaceEntry& entry : entries) {
        if (entry.size_bytes == 0 || entry.size_bytes % page_bytes != 0) {
            return "a place is not a multiple of the page";
        }
        if (uint64_t{entry.name_offset} + entry.name_bytes > head.name_table_bytes) {
            return "a name leaves its table";
        }
    }
    const std::vector<offload::PlaceSpec> places = places_of(map);
    const Placement placement = lay_places(places, pattern_of(head), head.stripe_bytes);
    if (placement.path_bytes[head.path_index] != head.data_bytes) {
        return "the places do not take the bytes that the superblock says";
    }
    for (size_t place = 0; place < places.size(); place++) {
        const PlaceEntry wanted = entry_of(places[place], placement.copies[place], head.path_index);
        if (entries[place].copy_offset != wanted.copy_offset ||
            entries[place].copy_bytes != wanted.copy_bytes ||
            entries[place].first_slot != wanted.first_slot) {
            return "a place does not lie where the striping rule puts it";
        }
    }
    return nullptr;
}

}  // namespace

MapImage make_map(const MapSpec& spec, const std::vector<offload::PlaceSpec>& durable_places,
                  const Placement& placement) {
    CHECK_EQ(placement.copies.size(), durable_places.size());
    CHECK_LT(spec.path_index, placement.path_bytes.size());
    CHECK_EQ(spec.paths.size(), placement.path_bytes.size());
    CHECK_LT(spec.run_name.size(), 64u);
    CHECK(check_path_table(spec.paths).ok());
    CHECK(check_path_table(spec.predecessor.paths).ok());
    const MapLayout layout = layout_of(durable_places);
    MapImage map{};
    Superblock& head = map.superblock;
    head.magic = store_magic;
    head.version = format_version;
    head.layout = layout_round_robin;
    head.uuid = spec.uuid;
    head.path_index = spec.path_index;
    head.path_count = static_cast<uint32_t>(placement.path_bytes.size());
    head.stripe_bytes = placement.stripe_bytes;
    head.place_count = durable_places.size();
    head.place_table_offset = place_table_offset;
    head.name_table_offset = layout.name_table_offset;
    head.name_table_bytes = layout.name_table_bytes;
    head.commit_area_offset = layout.commit_area_offset;
    head.commit_area_bytes = layout.commit_area_bytes;
    head.map_bytes = layout.map_bytes;
    head.data_bytes = placement.path_bytes[spec.path_index];
    head.predecessor_path_count = static_cast<uint32_t>(spec.predecessor.paths.size());
    head.predecessor_uuid = spec.predecessor.uuid;
    head.copy_count = count_of(durable_places.empty() ? Copies::two : durable_places[0].copies);
    put_text(head.run_name, spec.run_name);
    head.pattern_count = static_cast<uint32_t>(placement.pattern.size());
    std::ranges::transform(placement.pattern, head.pattern.begin(),
                           [](uint32_t path) { return static_cast<uint8_t>(path); });

    map.tables.resize(layout.commit_area_offset[0] - path_table_offset);
    const std::string paths = joined(spec.paths);
    std::memcpy(map.tables.data(), paths.data(), paths.size());
    const std::string predecessor_paths = joined(spec.predecessor.paths);
    std::memcpy(map.tables.data() + path_table_bytes, predecessor_paths.data(),
                predecessor_paths.size());
    put_places(map, durable_places, placement);
    head.table_hash = table_hash_of(map);
    head.hash = hash_of(head);
    CHECK(find_fault(map) == nullptr);
    return map;
}

uint64_t map_bytes_of(const std::vector<offload::PlaceSpec>& durable_places) {
    return layout_of(durable_places).map_bytes;
}

offload::Status check_path_table(const std::vector<std::string>& paths) {
    const uint64_t text_bytes = joined(paths).size();
    if (text_bytes <= path_table_bytes) return {};
    return offload::Error{
        offload::ErrorCode::usage,
        fmt::format("the NVMe paths have {} characters together, and a store has room for {}",
                    text_bytes, path_table_bytes),
        "use links with shorter names"};
}

FirstPage classify(std::span<const std::byte, 4096> page) {
    if (is_unfinished(page)) return FirstPage::unfinished;
    const auto head = struct_of<Superblock>(page);
    if (head.magic != store_magic) return FirstPage::foreign;
    if (head.version > format_version) return FirstPage::newer;
    if (head.hash != hash_of(head)) return FirstPage::foreign;
    return head.version >= oldest_version ? FirstPage::store : FirstPage::older;
}

Superblock superblock_of(std::span<const std::byte, 4096> page) {
    CHECK_EQ(classify(page), FirstPage::store);
    return struct_of<Superblock>(page);
}

const char* find_fault(const MapImage& map) {
    const Superblock& head = map.superblock;
    if (const char* fault = find_superblock_fault(head)) return fault;
    if (map.tables.size() != head.commit_area_offset[0] - path_table_offset) {
        return "the tables are cut short";
    }
    if (head.table_hash != table_hash_of(map)) return "the tables do not fit their hash";
    return find_place_fault(map);
}

std::vector<offload::PlaceSpec> places_of(const MapImage& map) {
    const std::byte* names =
        map.tables.data() + (map.superblock.name_table_offset - path_table_offset);
    const Superblock& head = map.superblock;
    const bool has_one = head.version == format_version && head.copy_count == 1;
    std::vector<offload::PlaceSpec> places;
    for (const PlaceEntry& entry : entries_of(map)) {
        CHECK_LE(entry.name_offset + entry.name_bytes, map.superblock.name_table_bytes);
        const auto* name = reinterpret_cast<const char*>(names + entry.name_offset);
        places.push_back({.name = std::string(name, entry.name_bytes),
                          .size_bytes = entry.size_bytes,
                          .copies = has_one ? Copies::one : Copies::two});
    }
    return places;
}

std::vector<uint32_t> pattern_of(const Superblock& superblock) {
    CHECK_LE(superblock.pattern_count, superblock.pattern.size());
    return {superblock.pattern.begin(), superblock.pattern.begin() + superblock.pattern_count};
}

std::vector<std::string> paths_of(const MapImage& map) {
    CHECK_GE(map.tables.size(), path_table_bytes);
    return split_paths(std::span(map.tables).first(path_table_bytes), map.superblock.path_count);
}

Predecessor predecessor_of(const MapImage& map) {
    CHECK_GE(map.tables.size(), 2 * path_table_bytes);
    return {.uuid = map.superblock.predecessor_uuid,
            .paths = split_paths(std::span(map.tables).subspan(path_table_bytes, path_table_bytes),
                                 map.superblock.predecessor_path_count)};
}

Page owner_page_of(const Owner& owner) {
    OwnerPage content{};
    content.magic = owner_magic;
    content.pid = owner.pid;
    put_text(content.host, owner.host);
    put_text(content.boot_id, owner.boot_id);
    return page_of(content);
}

Owner owner_of(std::span<const std::byte, 4096> page) {
    const auto content = struct_of<OwnerPage>(page);
    if (content.magic != owner_magic || content.hash != hash_of(content)) return {};
    return {.pid = content.pid, .host = content.host.data(), .boot_id = content.boot_id.data()};
}

Page notice_page_of(const Notice& notice) {
    NoticePage content{};
    CHECK_LE(notice.path.size(), content.path.size());
    content.magic = notice_magic;
    content.successor_uuid = notice.successor_uuid;
    content.path_bytes = static_cast<uint32_t>(notice.path.size());
    std::ranges::copy(notice.path, content.path.begin());
    return page_of(content);
}

std::optional<Notice> notice_of(std::span<const std::byte, 4096> page) {
    const auto content = struct_of<NoticePage>(page);
    if (content.magic != notice_magic || content.hash != hash_of(content)) return {};
    if (content.path_bytes > content.path.size()) return {};
    return Notice{.successor_uuid = content.successor_uuid,
                  .path = std::string(content.path.data(), content.path_bytes)};
}

}  // namespace headrace::nvme
