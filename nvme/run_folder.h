// A store's folder on one path: `<path>/headrace-<run name>/` with its two files (FORMAT.md). Here
// is decided what may be made, replaced or removed: only a folder that is new, or whose map says
// that a store of this program made it, and never one that somebody holds. Links are followed in
// the path that the user gave, never below it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvme/direct_file.h"
#include "nvme/format.h"
#include "offload/result.h"

namespace headrace::nvme {

// A successor's folder lies beside that of the store it will succeed (FORMAT.md, successors).
enum class Role : uint8_t { truth, successor };
inline constexpr std::string_view run_folder_prefix = "headrace-";
inline constexpr std::string_view successor_ending = ".next";

// Whether anything has this name, a link to nothing included.
bool exists(const std::string& file);

// `<path>/headrace-<run name>`, with `.next` behind it for a successor.
std::string run_folder_of(const std::string& path, const std::string& run_name,
                          Role role = Role::truth);

// 1 to 63 letters, digits, '.', '_', '-', not beginning with '.' nor ending in ".next"; anything
// else is a usage Error.
offload::Status check_run_name(const std::string& run_name);

// What one path is asked to hold.
struct PathNeed {
    std::string path;
    uint64_t size_bytes = 0;  // data and map
};

// Looks and changes nothing: each path exists, is a folder, is writable by this user, is not named
// twice, and its file system has the room and the inodes (what an older store of the same run
// holds there counts as free; paths on one file system share its room). The Error names the path.
offload::Status check_paths(const std::vector<PathNeed>& needs, const std::string& run_name,
                            Role role = Role::truth);

// The most that a store which goes evenly over these paths may take, its maps included: of the file
// system with the least for each of its paths what is free for this user, an older store of the run
// or its successor counting as free, times the number of paths. 0 where a path cannot be asked.
uint64_t room_on_paths(const std::vector<std::string>& paths, const std::string& run_name);

// Both files, locked by this process. Destroying it keeps the files and gives up the locks.
struct RunFolder {
    std::string path;    // as the user gave it
    std::string folder;  // run_folder_of
    DirectFile map;      // buffered: small
    DirectFile data;
    bool was_made = false;  // by this call: an undo may remove it
};

struct FolderName {
    std::string path;
    std::string run_name;
    Role role = Role::truth;
};

// Takes over the folder, or makes it if it may be made, and locks its files; what an older store
// holds stays as it was. Errors: in use (names the owner where known), not ours, made by a newer
// version, the system's.
offload::Result<std::unique_ptr<RunFolder>> open_run_folder(const FolderName& name,
                                                            Existence existence,
                                                            const FileOperations& operations);

// Reserves the space for data_bytes of data (at least those of the map's durable places), finds out
// by one write and one read how the drive takes them, and writes the map, superblock last, all of
// it durable. From here on the older store is gone. Notes what is done without.
offload::Status lay_out(RunFolder& folder, const MapImage& map, uint64_t data_bytes,
                        std::vector<std::string>& notes);

// The same for a store that is there: durable bytes stay, scratch is made, longer or shorter.
offload::Status lay_out_scratch(RunFolder& folder, const MapImage& map, uint64_t data_bytes,
                                std::vector<std::string>& notes);

// What whoever reads a commit calls before: what a process left of the map in the page cache is
// made durable and then dropped there, so that what is read next is what the drive has. A record
// whose fdatasync failed may lie in the cache as if it were whole, told by no flush that comes
// later.
offload::Status settle_map(const DirectFile& map);

// The map of a store, its tables and sizes checked (bad_data Error): of a held folder, settled.
offload::Result<MapImage> read_map(const RunFolder& folder);

// The map in a file as it is, its tables checked: nothing for a store whose making was cut short,
// or of format 1. Errors (bad_data): newer, not ours, damaged. `folder` is for the text.
offload::Result<std::optional<MapImage>> parse_map(const DirectFile& map,
                                                   const std::string& folder);

// Unlinks the files of a folder that this process holds, and the folder if nothing else is in it.
offload::Status unlink_held(const RunFolder& folder);

// Who this process is, for the owner page.
Owner this_owner();

// Makes what was made, renamed or unlinked in a folder durable.
offload::Status sync_folder(const std::string& folder, const FileOperations& operations);

}  // namespace headrace::nvme
