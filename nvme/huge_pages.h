// Whether the memory of transfers lies on 2 MiB pages. It decides the speed: a drive takes a
// request in as many segments as it has pages, and 1 MiB on 4 KiB pages reads and writes at half
// the rate (and registering saves little once pages are huge). Memory is the caller's; here it is
// only looked at, in /proc/self/smaps, once, when a store is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headrace::nvme {

inline constexpr uint64_t huge_page_bytes = 2 << 20;

// Of mappings that hold some of the given memory.
struct HugePageShare {
    uint64_t resident_bytes = 0;  // in RAM now
    uint64_t huge_bytes = 0;      // of them on huge pages
};

// From the text of an smaps file.
HugePageShare huge_page_share(const std::string& smaps,
                              const std::vector<std::span<std::byte>>& buffers);

// A line for people if less than half of what is resident lies on huge pages; empty otherwise, and
// for buffers below 8 huge pages, which cannot matter.
std::string huge_page_note(const std::string& smaps,
                           const std::vector<std::span<std::byte>>& buffers);

// The same of this process.
std::string huge_page_note(const std::vector<std::span<std::byte>>& buffers);

}  // namespace headrace::nvme
