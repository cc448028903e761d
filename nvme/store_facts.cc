#include "nvme/store_facts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "nvme/promotion.h"
#include "nvme/store_files.h"
#include "offload/check.h"

namespace headrace::nvme {

using offload::Error;
using offload::ErrorCode;
using offload::Result;
using offload::Status;

namespace {

// Read and nothing else; the lock stays with whoever has it.
Result<DirectFile> open_map(const std::string& folder, const FileOperations& operations = {}) {
    return DirectFile::open(folder + "/map", Existence::must_exist, CachePolicy::buffered,
                            operations);
}

uint64_t bytes_of(const std::string& folder) {
    uint64_t bytes = 0;
    for (const char* name : {"/map", "/data"}) {
        std::error_code error;
        const auto file_bytes = std::filesystem::file_size(folder + name, error);
        if (!error) bytes += file_bytes;
    }
    return bytes;
}

Owner look_at_owner(const std::string& folder) {
    const Result<DirectFile> map = open_map(folder);
    Page page{};
    if (!map || !map->read_exact(owner_page_offset, page)) return {};
    return owner_of(page);
}

// The parts of a store that were found, and the paths that have none.
struct Parts {
    std::vector<MapImage> maps;
    std::vector<std::string> paths;    // parallel to maps
    std::vector<std::string> without;  // no folder, or one that holds no part
};

Result<Parts> find_parts(const std::vector<std::string>& paths, const std::string& run_name) {
    Parts parts;
    for (const std::string& path : paths) {
        const std::string folder = run_folder_of(path, run_name);
        std::optional<MapImage> map;
        if (exists(folder)) {
            Result<std::optional<MapImage>> looked = look_at_map(folder);
            if (!looked) return looked.error();
            map = std::move(*looked);
        }
        if (!map) {
            parts.without.push_back(path);
            continue;
        }
        parts.maps.push_back(std::move(*map));
        parts.paths.push_back(path);
    }
    return parts;
}

// Whether path 0, under the name that it had when the store was made, is one of those named and has
// been emptied: whoever did that was about to make another store there.
bool is_first_empty(const Parts& parts, const std::string& run_name) {
    CHECK(!parts.maps.empty());
    const std::string first = paths_of(parts.maps[0])[0];
    return std::ranges::any_of(parts.without, [&](const std::string& path) {
        std::error_code error;
        const std::filesystem::path whole = std::filesystem::canonical(path, error);
        return !error && whole == first && exists(run_folder_of(path, run_name) + "/map");
    });
}

// Whether a commit could be lost by taking the parts for nothing: path 0 has one, or is not there.
Result<bool> may_hold_commit(const Parts& parts, const std::string& run_name,
                             const FileOperations& operations) {
    bool has_first = false;
    for (size_t part = 0; part < parts.maps.size(); part++) {
        if (parts.maps[part].superblock.path_index != 0) continue;
        has_first = true;
        const Result<KeptCommits> commits = look_at_commits(
            run_folder_of(parts.paths[part], run_name), parts.maps[part], operations);
        if (!commits) return commits.error();
        if (commits->newest) return true;
    }
    return !has_first && !is_first_empty(parts, run_name);
}

std::vector<uint32_t> weights_of(const std::vector<uint32_t>& pattern, uint32_t path_count) {
    std::vector<uint32_t> weights(path_count, 0);
    for (const uint32_t path : pattern) weights[path]++;
    return weights;
}

}  // namespace

std::optional<CommitId> StoreFacts::newest_id() const {
    if (!newest) return {};
    return CommitId{.uuid = uuid, .sequence = newest->sequence};
}

bool is_held(const std::string& folder) {
    for (const char* name : {"/map", "/data"}) {
        const int descriptor = open((folder + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (descriptor < 0) continue;
        // Shared, so that two who look do not see each other; an open tries again for a moment.
        const bool is_taken = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        close(descriptor);
        if (is_taken) return true;
    }
    return false;
}

Result<std::optional<MapImage>> look_at_map(const std::string& folder) {
    if (!exists(folder + "/map")) {
        if (!exists(folder + "/data")) return std::optional<MapImage>{};
        return Error{ErrorCode::bad_data, "cannot read " + folder,
                     "it has a file `data` and no `map`: no store made it; remove the folder or "
                     "choose another run name"};
    }
    const Result<DirectFile> map = open_map(folder);
    if (!map) return map.error();
    return parse_map(*map, folder);
}

Status check_not_moved(const std::string& folder, const std::string& run_name,
                       const FileOperations& operations) {
    const Result<DirectFile> map = open_map(folder);
    if (!map) return map.error();
    Page page{};
    if (Status status = map->read_exact(notice_page_offset, page); !status) return status;
    const std::optional<Notice> notice = notice_of(page);
    if (!notice) return {};
    for (const Role role : {Role::successor, Role::truth}) {
        const std::string successor = run_folder_of(notice->path, run_name, role);
        if (!exists(successor)) continue;
        const Result<std::optional<MapImage>> found = look_at_map(successor);
        if (!found || !found->has_value()) continue;
        const Superblock& head = (*found)->superblock;
        if (head.uuid != notice->successor_uuid || head.path_index != 0) continue;
        const Result<KeptCommits> commits = look_at_commits(successor, **found, operations);
        if (!commits) return commits.error();
        if (!commits->newest) continue;
        return Error{ErrorCode::bad_data, "the store " + folder + " was moved",
                     fmt::format("its successor is on {}: name these paths",
                                 fmt::join(paths_of(**found), ", "))};
    }
    return {};
}

Result<KeptCommits> look_at_commits(const std::string& folder, const MapImage& map,
                                    const FileOperations& operations) {
    CHECK_EQ(map.superblock.path_index, 0u);
    const Result<DirectFile> file = open_map(folder, operations);
    if (!file) return file.error();
    if (Status status = settle_map(*file); !status) return status.error();
    Journal journal(*file, map.superblock);
    if (Status status = journal.read(); !status) return status.error();
    return KeptCommits{.newest = journal.newest(), .older = journal.older()};
}

Result<std::optional<StoreFacts>> look_at_store(const std::vector<std::string>& paths,
                                                const std::string& run_name,
                                                const FileOperations& operations) {
    CHECK(!paths.empty());
    if (Status status = check_run_name(run_name); !status) return status.error();
    Status finished = finish_promotion(paths, run_name, operations);
    if (!finished) return finished.error();
    const Result<Parts> parts = find_parts(paths, run_name);
    if (!parts) return parts.error();
    if (parts->maps.empty()) return std::optional<StoreFacts>{};
    const Result<std::vector<size_t>> order = order_of(parts->maps, parts->paths);
    if (!order || !parts->without.empty()) {
        const Result<bool> is_precious = may_hold_commit(*parts, run_name, operations);
        if (!is_precious) return is_precious.error();
        if (!*is_precious) return std::optional<StoreFacts>{};
        if (!order) return order.error();
        return Error{ErrorCode::bad_data,
                     fmt::format("the store of the run '{}' is on {} and not on {}", run_name,
                                 fmt::join(parts->paths, ", "), fmt::join(parts->without, ", ")),
                     "name its own paths and no others (headrace store move adds or removes one)"};
    }
    StoreFacts facts;
    for (const size_t position : *order) facts.paths.push_back(parts->paths[position]);
    const MapImage& first = parts->maps[(*order)[0]];
    const std::string first_folder = run_folder_of(facts.paths[0], run_name);
    Status here = check_not_moved(first_folder, run_name, operations);
    if (!here) return here.error();
    Result<KeptCommits> commits = look_at_commits(first_folder, first, operations);
    if (!commits) return commits.error();
    facts.uuid = first.superblock.uuid;
    for (const std::string& path : facts.paths) {
        std::error_code error;
        const std::filesystem::path whole = std::filesystem::canonical(path, error);
        facts.known_paths.push_back(error ? path : whole.string());
    }
    facts.places = places_of(first);
    facts.stripe_bytes = first.superblock.stripe_bytes;
    facts.pattern = pattern_of(first.superblock);
    facts.weights = weights_of(facts.pattern, first.superblock.path_count);
    facts.newest = std::move(commits->newest);
    facts.older = std::move(commits->older);
    facts.owner = look_at_owner(first_folder);
    for (const std::string& path : facts.paths) {
        const std::string folder = run_folder_of(path, run_name);
        facts.is_live = facts.is_live || is_held(folder);
        facts.size_bytes += bytes_of(folder);
    }
    return std::optional<StoreFacts>(std::move(facts));
}

Result<std::vector<ListedStore>> list_stores(const std::string& path) {
    std::error_code error;
    std::filesystem::directory_iterator entries(path, error);
    if (error) return Error{ErrorCode::failed, "cannot list " + path, error.message()};
    std::vector<ListedStore> stores;
    for (const auto& entry : entries) {
        std::string name = entry.path().filename().string();
        if (!name.starts_with(run_folder_prefix) || !entry.is_directory(error)) continue;
        ListedStore store{.folder = entry.path().string()};
        name.erase(0, run_folder_prefix.size());
        if (name.ends_with(successor_ending)) {
            name.erase(name.size() - successor_ending.size());
            store.role = Role::successor;
        }
        store.run_name = name;
        store.size_bytes = bytes_of(store.folder);
        store.is_live = is_held(store.folder);
        const Result<std::optional<MapImage>> map = look_at_map(store.folder);
        if (!map) {
            store.fault = map.error().text();
        } else if (!map->has_value()) {
            store.fault =
                "no store that can be resumed: its making was cut short, or an older "
                "version made it";
        } else {
            store.path_index = (*map)->superblock.path_index;
            store.paths = paths_of(**map);
            store.owner = look_at_owner(store.folder);
            if (store.path_index == 0) {
                const Result<KeptCommits> commits = look_at_commits(store.folder, **map);
                if (!commits) store.fault = commits.error().text();
                if (commits && commits->newest) store.attempts = commits->newest->record.attempts;
            }
        }
        stores.push_back(std::move(store));
    }
    std::ranges::sort(stores, {}, &ListedStore::folder);
    return stores;
}

}  // namespace headrace::nvme
