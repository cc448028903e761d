// What this process has moved to and from drives, as the kernel counts it (/proc/self/io): bytes
// that were fetched from below the page cache, and bytes that were sent there. What the page cache
// or a file system in memory serves is in neither.
#pragma once

#include <cstdint>
#include <string>

namespace headrace::nvme {

struct ProcessIo {
    uint64_t read_bytes = 0;
    uint64_t written_bytes = 0;
    bool is_known = false;

    // What was moved since `before`, an earlier look (CHECK); unknown where one of them is.
    ProcessIo operator-(const ProcessIo& before) const;
};

// Unknown where the kernel keeps no account, or the file cannot be read.
ProcessIo read_process_io();
ProcessIo parse_process_io(const std::string& text);

}  // namespace headrace::nvme
