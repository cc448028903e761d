// The words for a system call that failed: attempted, on which file, with which numbers, the
// system's own words, the likely cause and the remedy. Reads free space and limits to say them.
#pragma once

#include <cstdint>
#include <string>

#include "offload/result.h"

namespace headrace::nvme {

// "ENOSPC (No space left on device)".
std::string describe_errno(int error_number);

// `attempted` begins with "cannot"; `path` is a file or folder, whose file system is asked for free
// space if that matters. error_number is positive.
offload::Error io_error(const std::string& attempted, const std::string& path, int error_number);

// Bytes that an ordinary user may still write to the file system of `path`; 0 if it cannot be
// asked.
uint64_t free_bytes_at(const std::string& path);

}  // namespace headrace::nvme
