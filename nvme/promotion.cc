#include "nvme/promotion.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "nvme/io_error.h"
#include "nvme/journal.h"
#include "nvme/run_folder.h"
#include "nvme/store_facts.h"
#include "offload/check.h"

namespace headrace::nvme {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// What was asked for.
struct Promotion {
    std::vector<std::string> paths;
    std::string run_name;
    FileOperations operations;
};

// A successor's folder on one path, held.
struct Piece {
    std::unique_ptr<RunFolder> folder;
    std::optional<MapImage> map;  // none: its making was cut short
    bool is_first() const { return map && map->superblock.path_index == 0; }
};

Error refused(const Promotion& promotion, std::string cause) {
    return Error{ErrorCode::bad_data,
                 fmt::format("cannot promote the successor of the run '{}' on {}",
                             promotion.run_name, fmt::join(promotion.paths, ", ")),
                 std::move(cause)};
}

Result<std::vector<Piece>> hold_folders(const Promotion& promotion) {
    std::vector<Piece> pieces;
    for (const std::string& path : promotion.paths) {
        const FolderName name{
            .path = path, .run_name = promotion.run_name, .role = Role::successor};
        if (!exists(run_folder_of(path, name.run_name, name.role))) continue;
        // A folder that was cut short has its files made, so that they can be held and removed.
        Result<std::unique_ptr<RunFolder>> folder =
            open_run_folder(name, Existence::may_be_made, promotion.operations);
        if (!folder) return folder.error();
        pieces.push_back({.folder = std::move(*folder), .map = {}});
    }
    return pieces;
}

// Path 0 is last then: what is done to it decides what a crash leaves.
Status parse_maps(std::vector<Piece>& pieces) {
    for (Piece& piece : pieces) {
        Result<std::optional<MapImage>> map = parse_map(piece.folder->map, piece.folder->folder);
        if (!map) return map.error();
        piece.map = std::move(*map);
    }
    std::ranges::stable_partition(pieces, [](const Piece& piece) { return !piece.is_first(); });
    return {};
}

// As the drives have them: a commit among them may cost the predecessor its life.
Result<std::vector<Piece>> hold_pieces(const Promotion& promotion) {
    Result<std::vector<Piece>> pieces = hold_folders(promotion);
    if (!pieces) return pieces;
    for (const Piece& piece : *pieces) {
        if (Status status = settle_map(piece.folder->map); !status) return status.error();
    }
    if (Status status = parse_maps(*pieces); !status) return status.error();
    return pieces;
}

// Of a successor that goes: then what a crash leaves of it is taken away, not promoted nor missed.
// A drive that refuses even that says so to whoever unlinks, too.
void erase_commits(const Piece& first) {
    CHECK(first.is_first());
    Journal journal(first.folder->map, first.map->superblock);
    if (journal.read().ok()) static_cast<void>(journal.forget_all());
}

// Whether path 0 of the successor, which is not named, still lies where it was made, and has no
// commit: a move to other paths that ended before its switch is no obstacle to the old ones.
bool is_known_empty(const Promotion& promotion, const MapImage& piece, const std::string& first) {
    const std::string folder = run_folder_of(first, promotion.run_name, Role::successor);
    if (is_held(folder) || !exists(folder)) return false;
    const Result<std::optional<MapImage>> map = look_at_map(folder);
    if (!map || !map->has_value()) return false;
    const Superblock& head = (*map)->superblock;
    if (head.uuid != piece.superblock.uuid || head.path_index != 0) return false;
    const Result<KeptCommits> commits = look_at_commits(folder, **map, promotion.operations);
    return commits.ok() && !commits->newest;
}

// Whether path 0 of the successor has a commit.
Result<bool> is_committed(const Promotion& promotion, const std::vector<Piece>& pieces) {
    CHECK(!pieces.empty());
    const Piece& last = pieces.back();
    if (last.is_first()) {
        Journal journal(last.folder->map, last.map->superblock);
        if (Status status = journal.read(); !status) return status.error();
        return journal.newest().has_value();
    }
    for (const Piece& piece : pieces) {
        if (!piece.map) continue;
        const std::vector<std::string> names = paths_of(*piece.map);
        if (is_known_empty(promotion, *piece.map, names[0])) continue;
        return refused(promotion, fmt::format("its first path, {} when it was made, is not named: "
                                              "name its own paths, {}",
                                              names[0], fmt::join(names, ", ")));
    }
    return false;
}

Status take_away(const Promotion& promotion, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
        if (Status status = unlink_held(*piece.folder); !status) return status;
        Status status = sync_folder(piece.folder->path, promotion.operations);
        if (!status) return status;
    }
    return {};
}

// Each path of the successor is here, still to be renamed or renamed already.
Status check_whole(const Promotion& promotion, const std::vector<Piece>& pieces) {
    const MapImage& first = *pieces.back().map;
    const std::vector<std::string> names = paths_of(first);
    std::vector<bool> is_here(first.superblock.path_count, false);
    for (const Piece& piece : pieces) {
        if (!piece.map || piece.map->superblock.uuid != first.superblock.uuid) {
            return refused(promotion, piece.folder->folder + " is no part of it; remove it");
        }
        is_here[piece.map->superblock.path_index] = true;
    }
    for (const std::string& path : promotion.paths) {
        const std::string folder = run_folder_of(path, promotion.run_name);
        if (!exists(folder)) continue;
        const Result<std::optional<MapImage>> map = look_at_map(folder);
        if (!map || !map->has_value()) continue;
        const Superblock& head = (*map)->superblock;
        if (head.uuid == first.superblock.uuid) is_here[head.path_index] = true;
    }
    for (size_t path = 0; path < is_here.size(); path++) {
        if (is_here[path]) continue;
        return refused(promotion, fmt::format("its part in {} (the name when it was made) is "
                                              "missing: mount and name it",
                                              names[path]));
    }
    return {};
}

// The folder of the predecessor on one path, if it is there.
Status remove_predecessor(const Promotion& promotion, const std::string& path,
                          const MapImage& successor) {
    const std::string folder = run_folder_of(path, promotion.run_name);
    if (!exists(folder)) return {};
    const Result<std::optional<MapImage>> map = look_at_map(folder);
    if (!map) return map.error();
    if (map->has_value()) {
        const Uuid& uuid = (*map)->superblock.uuid;
        if (uuid == successor.superblock.uuid) return {};
        if (uuid != successor.superblock.predecessor_uuid) {
            // Where the predecessor was, another run may have begun since.
            if (std::ranges::find(promotion.paths, path) == promotion.paths.end()) return {};
            return refused(promotion, folder + " holds another store; remove or rename it");
        }
    }
    const Result<std::unique_ptr<RunFolder>> held =
        open_run_folder({.path = path, .run_name = promotion.run_name}, Existence::may_be_made,
                        promotion.operations);
    if (!held) return held.error();
    if (Status status = unlink_held(**held); !status) return status;
    return sync_folder(path, promotion.operations);
}

Status take_place(const Promotion& promotion, const std::vector<Piece>& pieces) {
    const MapImage& first = *pieces.back().map;
    // The predecessor's own order, its path 0 first: then whatever is left of it is no store.
    std::vector<std::string> paths = predecessor_of(first).paths;
    paths.insert(paths.end(), promotion.paths.begin(), promotion.paths.end());
    for (const std::string& path : paths) {
        if (Status status = remove_predecessor(promotion, path, first); !status) return status;
    }
    for (const Piece& piece : pieces) {
        const std::string target = run_folder_of(piece.folder->path, promotion.run_name);
        const int outcome = rename_entry(promotion.operations, piece.folder->folder, target);
        if (outcome < 0) {
            return io_error(fmt::format("cannot rename {} to {}", piece.folder->folder, target),
                            piece.folder->path, -outcome);
        }
        Status status = sync_folder(piece.folder->path, promotion.operations);
        if (!status) return status;
    }
    return {};
}

// Whether every path has the run's name for a part of this store.
bool is_at_its_place(const Promotion& promotion, const Uuid& uuid) {
    return std::ranges::all_of(promotion.paths, [&](const std::string& path) {
        const Result<std::optional<MapImage>> map =
            look_at_map(run_folder_of(path, promotion.run_name));
        return map.ok() && map->has_value() && (*map)->superblock.uuid == uuid;
    });
}

}  // namespace

Status promote_store(const std::vector<std::string>& paths, const std::string& run_name,
                     const Uuid& uuid, const FileOperations& operations) {
    CHECK(!paths.empty());
    const Promotion promotion{.paths = paths, .run_name = run_name, .operations = operations};
    const Result<std::vector<Piece>> pieces = hold_pieces(promotion);
    if (!pieces) return pieces.error();
    if (pieces->empty()) {
        const bool is_promoted = is_at_its_place(promotion, uuid);
        return is_promoted ? Status{} : Status(refused(promotion, "there is none"));
    }
    const Result<bool> is_truth = is_committed(promotion, *pieces);
    if (!is_truth) return is_truth.error();
    if (!*is_truth) return refused(promotion, "it has no commit");
    if (Status status = check_whole(promotion, *pieces); !status) return status;
    return take_place(promotion, *pieces);
}

Status discard_successor(const std::vector<std::string>& paths, const std::string& run_name,
                         const Uuid& uuid, const FileOperations& operations) {
    CHECK(!paths.empty());
    const Promotion promotion{.paths = paths, .run_name = run_name, .operations = operations};
    Result<std::vector<Piece>> pieces = hold_folders(promotion);
    if (!pieces) return pieces.error();
    if (Status status = parse_maps(*pieces); !status) return status;
    for (const Piece& piece : *pieces) {
        if (piece.map && piece.map->superblock.uuid == uuid) continue;
        return refused(promotion, piece.folder->folder + " is no part of it; remove it");
    }
    if (pieces->empty()) return {};  // a look took it away, or had it take its place
    if (pieces->back().is_first()) erase_commits(pieces->back());
    return take_away(promotion, *pieces);
}

Status finish_promotion(const std::vector<std::string>& paths, const std::string& run_name,
                        const FileOperations& operations) {
    const Promotion promotion{.paths = paths, .run_name = run_name, .operations = operations};
    bool is_there = false;
    for (const std::string& path : paths) {
        const std::string folder = run_folder_of(path, run_name, Role::successor);
        is_there = is_there || exists(folder);
        if (is_held(folder)) return {};  // somebody is at it
    }
    if (!is_there) return {};
    const Result<std::vector<Piece>> pieces = hold_pieces(promotion);
    if (!pieces) return pieces.error();
    if (pieces->empty()) return {};  // somebody else ended it just now
    const Result<bool> is_truth = is_committed(promotion, *pieces);
    if (!is_truth) return is_truth.error();
    if (!*is_truth) return take_away(promotion, *pieces);
    if (Status status = check_whole(promotion, *pieces); !status) return status;
    return take_place(promotion, *pieces);
}

}  // namespace headrace::nvme
