// What is known of the drives of this machine, kept in a small file (DRIVES.md), so that opening a
// store on several paths need not measure them each time. Losing it costs a second per drive, so
// nothing that goes wrong with it is an error to anybody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nvme/drive.h"

namespace headrace::nvme {

struct KnownDrive {
    Drive drive;
    bool is_quick = false;  // a second's measuring, whose sustained rate is a hope
    int64_t measured_unix_s = 0;
};

// How long a result is believed.
inline constexpr int64_t known_seconds_max = 90 * 86400;
inline constexpr int64_t quickly_known_seconds_max = 7 * 86400;

// What tells this drive from others, as in DRIVES.md; empty where no drive is behind the folder.
std::string key_of(const DriveFacts& facts);

class DriveCache {
  public:
    // Nothing is read yet. An empty path: it knows nothing and keeps nothing.
    explicit DriveCache(std::string file) : file_(std::move(file)) {}

    std::optional<KnownDrive> find(const DriveFacts& facts, int64_t now_unix_s) const;

    // Whether it was kept: not where the file cannot be written, nor a quick result over a good
    // thorough one, nor that of a folder without a drive.
    bool keep(const DriveFacts& facts, const KnownDrive& known) const;

  private:
    std::string file_;
};

}  // namespace headrace::nvme
