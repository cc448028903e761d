#include "nvme/huge_pages.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

namespace {

constexpr uint64_t noted_bytes_min = 8 * huge_page_bytes;

struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
};

// "7f12a000-7f13b000 rw-p ...": the first line of a mapping.
bool parse_range(std::string_view line, Range& range) {
    const size_t dash = line.find('-');
    const size_t space = line.find(' ');
    if (dash == std::string_view::npos || space == std::string_view::npos || dash > space) {
        return false;
    }
    const auto hex = [](std::string_view digits, uint64_t& value) {
        const char* const end = digits.data() + digits.size();
        return std::from_chars(digits.data(), end, value, 16).ptr == end && !digits.empty();
    };
    return hex(line.substr(0, dash), range.begin) &&
           hex(line.substr(dash + 1, space - dash - 1), range.end);
}

bool overlaps(const Range& range, const std::vector<std::span<std::byte>>& buffers) {
    return std::ranges::any_of(buffers, [&range](std::span<std::byte> buffer) {
        const auto begin = reinterpret_cast<uint64_t>(buffer.data());
        return begin < range.end && range.begin < begin + buffer.size();
    });
}

uint64_t bytes_of(const std::vector<std::span<std::byte>>& buffers) {
    uint64_t size_bytes = 0;
    for (const std::span<std::byte> buffer : buffers) size_bytes += buffer.size();
    return size_bytes;
}

}  // namespace

HugePageShare huge_page_share(const std::string& smaps,
                              const std::vector<std::span<std::byte>>& buffers) {
    HugePageShare share;
    bool is_ours = false;
    std::istringstream lines(smaps);
    for (std::string line; std::getline(lines, line);) {
        if (Range range; parse_range(line, range)) {
            is_ours = overlaps(range, buffers);
            continue;
        }
        if (!is_ours) continue;
        std::istringstream words(line);
        std::string name;
        uint64_t amount_kib = 0;
        if (!(words >> name >> amount_kib)) continue;
        const uint64_t amount_bytes = amount_kib * offload::kib;
        // Reserved huge pages are not part of Rss.
        const bool is_reserved = name == "Private_Hugetlb:" || name == "Shared_Hugetlb:";
        if (name == "Rss:" || is_reserved) share.resident_bytes += amount_bytes;
        if (name == "AnonHugePages:" || name == "ShmemPmdMapped:" || is_reserved) {
            share.huge_bytes += amount_bytes;
        }
    }
    return share;
}

std::string huge_page_note(const std::string& smaps,
                           const std::vector<std::span<std::byte>>& buffers) {
    if (bytes_of(buffers) < noted_bytes_min) return "";
    const HugePageShare share = huge_page_share(smaps, buffers);
    if (share.resident_bytes < noted_bytes_min) return "";  // not touched yet: nothing is known
    if (2 * share.huge_bytes >= share.resident_bytes) return "";
    return fmt::format(
        "{} of {} of I/O memory lie on 2 MiB pages: drives then reach about half of their speed; "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and where memory is in "
        "pieces: echo 1 > /proc/sys/vm/compact_memory before the start",
        offload::format_bytes(share.huge_bytes), offload::format_bytes(share.resident_bytes));
}

std::string huge_page_note(const std::vector<std::span<std::byte>>& buffers) {
    if (bytes_of(buffers) < noted_bytes_min) return "";  // smaps takes milliseconds
    std::ifstream stream("/proc/self/smaps");
    return huge_page_note({std::istreambuf_iterator<char>(stream), {}}, buffers);
}

}  // namespace headrace::nvme
