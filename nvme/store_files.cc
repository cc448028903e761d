#include "nvme/store_files.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "nvme/drive.h"
#include "nvme/io_error.h"
#include "nvme/store_facts.h"
#include "offload/check.h"
#include "offload/units.h"

namespace headrace::nvme {

using offload::Error;
using offload::ErrorCode;
using offload::format_bytes;
using offload::PlaceSpec;
using offload::Result;
using offload::Status;

namespace {

Status check_budget(const StoreOptions& options, uint64_t needed_bytes) {
    if (needed_bytes <= options.budget_bytes) return {};
    return Error{
        ErrorCode::does_not_fit,
        fmt::format("the store needs {} ({} bytes) in {} and the nvme budget is {} ({} "
                    "bytes)",
                    format_bytes(needed_bytes), needed_bytes, fmt::join(options.paths, ", "),
                    format_bytes(options.budget_bytes), options.budget_bytes),
        "raise nvme_budget, or place less on nvme"};
}

// `paths` in the order of the store.
Status check_room(const StoreOptions& options, const std::vector<std::string>& paths,
                  const Placement& placement, uint64_t map_bytes, Role role) {
    CHECK_EQ(paths.size(), placement.path_bytes.size());
    std::vector<PathNeed> needs;
    for (size_t path = 0; path < paths.size(); path++) {
        needs.push_back(
            {.path = paths[path], .size_bytes = placement.path_bytes[path] + map_bytes});
    }
    return check_paths(needs, options.run_name, role);
}

// Weights come this many steps nearer to equal ones, one after another, until there is room.
constexpr uint32_t steps_to_even = 8;

std::vector<uint32_t> nearer_to_even(const std::vector<uint32_t>& weights, uint32_t step) {
    CHECK_LE(step, steps_to_even);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double even = static_cast<double>(step) / static_cast<double>(weights.size());
    std::vector<double> shares;
    for (const uint32_t weight : weights) shares.push_back((steps_to_even - step) * weight / sum);
    for (double& share : shares) share += even;
    return weights_of_rates(std::move(shares));
}

// The layout by the weights that were asked for, or, where a drive has no room for its share, by
// those between them and equal ones that are the first to fit. The Error is of the former.
Result<Placement> place_with_room(const StoreOptions& options, uint64_t map_bytes, Role role,
                                  std::vector<std::string>& notes) {
    std::vector<uint32_t> wanted = options.weights;
    if (wanted.empty()) wanted.assign(options.paths.size(), 1);
    Placement placement = make_placement(options.places, wanted, options.block_bytes);
    const Status fits = check_room(options, options.paths, placement, map_bytes, role);
    if (fits.ok()) return placement;
    if (fits.error().code != ErrorCode::does_not_fit) return fits.error();
    std::vector<uint32_t> tried = wanted;
    for (uint32_t step = 1; step <= steps_to_even; step++) {
        std::vector<uint32_t> weights = nearer_to_even(wanted, step);
        if (weights == tried) continue;
        placement = make_placement(options.places, weights, options.block_bytes);
        if (check_room(options, options.paths, placement, map_bytes, role).ok()) {
            notes.push_back(fmt::format("blocks go round the paths {} instead of {}: {}",
                                        fmt::join(weights, " : "), fmt::join(wanted, " : "),
                                        fits.error().what));
            return placement;
        }
        tried = std::move(weights);
    }
    return fits.error();
}

Uuid random_uuid() {
    Uuid uuid{};
    CHECK_EQ(getrandom(uuid.data(), uuid.size(), 0), static_cast<ssize_t>(uuid.size()));
    return uuid;
}

// Without links, as far as the file system says.
std::vector<std::string> absolute(const std::vector<std::string>& paths) {
    std::vector<std::string> result;
    for (const std::string& path : paths) {
        std::error_code error;
        const std::filesystem::path whole = std::filesystem::canonical(path, error);
        result.push_back(error ? path : whole.string());
    }
    return result;
}

Result<std::vector<std::unique_ptr<RunFolder>>> lock_all(const StoreOptions& options, Role role,
                                                         Existence existence) {
    std::vector<std::unique_ptr<RunFolder>> folders;
    for (const std::string& path : options.paths) {
        Result<std::unique_ptr<RunFolder>> folder =
            open_run_folder({.path = path, .run_name = options.run_name, .role = role}, existence,
                            options.operations);
        if (!folder) {
            remove_new(folders);
            return folder.error();
        }
        folders.push_back(std::move(*folder));
    }
    return folders;
}

// An older store ends on all paths, durably, before the new one begins on any: its path 0 first,
// and with it its commits.
Status end_older(const std::vector<std::unique_ptr<RunFolder>>& folders) {
    std::vector<RunFolder*> ordered;
    for (const auto& folder : folders) {
        Page page{};
        const Result<uint64_t> map_bytes = folder->map.size_bytes();
        if (!map_bytes) return map_bytes.error();
        if (*map_bytes >= page.size()) {
            if (Status status = folder->map.read_exact(0, page); !status) return status;
        }
        const bool is_first =
            classify(page) == FirstPage::store && superblock_of(page).path_index == 0;
        ordered.insert(is_first ? ordered.begin() : ordered.end(), folder.get());
    }
    CHECK_EQ(ordered.size(), folders.size());
    for (RunFolder* folder : ordered) {
        if (Status status = folder->map.make_empty(); !status) return status;
    }
    return {};
}

Status lay_out_all(StoreFiles& files, MapSpec spec, const std::vector<PlaceSpec>& durable,
                   std::vector<std::string>& notes) {
    if (Status status = end_older(files.folders); !status) return status;
    const Placement placement =
        lay_places(durable, files.placement.pattern, files.placement.stripe_bytes);
    CHECK(placement.path_bytes == files.placement.durable_bytes);  // scratch comes behind them
    for (const auto& folder : files.folders) {
        const MapImage map = make_map(spec, durable, placement);
        const uint64_t data_bytes = files.placement.path_bytes[spec.path_index];
        if (Status status = lay_out(*folder, map, data_bytes, notes); !status) return status;
        if (spec.path_index == 0) {
            files.journal = std::make_unique<Journal>(folder->map, map.superblock);
        }
        spec.path_index++;
    }
    return {};
}

// That a resume finds the places it expects.
Status check_places(const std::vector<PlaceSpec>& wanted, const std::vector<PlaceSpec>& found,
                    const std::string& folder) {
    const auto [in_wanted, in_found] = std::ranges::mismatch(wanted, found);
    if (in_wanted == wanted.end() && in_found == found.end()) return {};
    const auto describe = [](const auto& place, const auto& end) {
        return place == end ? "none"
                            : fmt::format("'{}' of {} bytes", place->name, place->size_bytes);
    };
    return Error{
        ErrorCode::bad_data, fmt::format("the store {} holds other places", folder),
        fmt::format("place {}: the run wants {} and the store has {} ({} wanted in all, {} there); "
                    "it was made for another model, another part size or other placements",
                    in_wanted - wanted.begin(), describe(in_wanted, wanted.end()),
                    describe(in_found, found.end()), wanted.size(), found.size())};
}

// That the store is still at the commit that a look told of.
Status check_expected(const StoreOptions& options, const Journal& journal,
                      const std::string& folder) {
    if (!options.expected) return {};
    const std::optional<Commit>& newest = journal.newest();
    const bool is_same_store = journal.uuid() == options.expected->uuid;
    if (is_same_store && newest && newest->sequence == options.expected->sequence) return {};
    const std::string now = newest ? fmt::format("its newest commit is number {}, of step {}",
                                                 newest->sequence, newest->record.attempts)
                                   : "it has no commit";
    return Error{
        ErrorCode::failed, "the store " + folder + " is not what it was a moment ago",
        fmt::format("commit number {} was read, and now {}{}: another process went on with "
                    "it in between; start again",
                    options.expected->sequence, now,
                    is_same_store ? "" : ", of another store of the same name")};
}

std::string index_list(const std::vector<std::string>& names) {
    return fmt::format("{}", fmt::join(names, ", "));
}

// Whom the successor succeeds, if the options do not say: the run's store on these paths.
Result<Predecessor> find_predecessor(const StoreOptions& options) {
    if (!options.predecessor.paths.empty()) return options.predecessor;
    // Where it lies now; a path that is not named lies where it lay when it was made.
    const std::vector<std::string> now = absolute(options.paths);
    Predecessor predecessor;
    for (size_t path = 0; path < options.paths.size(); path++) {
        const Result<std::optional<MapImage>> map =
            look_at_map(run_folder_of(options.paths[path], options.run_name));
        if (!map) return map.error();
        if (!map->has_value()) continue;
        const Superblock& head = (*map)->superblock;
        if (predecessor.paths.empty()) {
            predecessor = {.uuid = head.uuid, .paths = paths_of(**map)};
        }
        if (head.uuid == predecessor.uuid) predecessor.paths[head.path_index] = now[path];
    }
    return predecessor;
}

// Tells whoever opens the predecessor by its own paths where its successor is.
Status write_notice(const MapSpec& successor, const FileOperations& operations) {
    if (successor.predecessor.paths.empty()) return {};
    const std::string folder = run_folder_of(successor.predecessor.paths[0], successor.run_name);
    const Result<DirectFile> map =
        DirectFile::open(folder + "/map", Existence::must_exist, CachePolicy::buffered, operations);
    if (!map) return map.error();
    const Notice notice{.successor_uuid = successor.uuid, .path = successor.paths[0]};
    Status status = map->write_exact(notice_page_offset, notice_page_of(notice));
    return status.ok() ? map->flush() : status;
}

Status check_all_there(const StoreOptions& options) {
    std::vector<std::string> without;
    for (const std::string& path : options.paths) {
        struct stat facts {};
        if (lstat(run_folder_of(path, options.run_name).c_str(), &facts) == 0) continue;
        if (errno != ENOENT) return io_error("cannot use the NVMe path " + path, path, errno);
        without.push_back(path);
    }
    if (without.empty()) return {};
    return Error{ErrorCode::bad_data,
                 fmt::format("cannot resume the run '{}' from {}", options.run_name,
                             index_list(options.paths)),
                 fmt::format("there is nothing of it in {}: name the paths that it was started "
                             "with and no others (headrace store move adds or removes one)",
                             index_list(without))};
}

}  // namespace

void remove_new(const std::vector<std::unique_ptr<RunFolder>>& folders) {
    for (const auto& folder : folders) {
        if (folder->was_made) static_cast<void>(unlink_held(*folder));
    }
}

std::vector<PlaceSpec> durable_of(const std::vector<PlaceSpec>& places) {
    std::vector<PlaceSpec> durable;
    std::ranges::copy_if(places, std::back_inserter(durable),
                         [](const PlaceSpec& place) { return is_durable(place.copies); });
    return durable;
}

uint64_t store_bytes_of(const std::vector<PlaceSpec>& places, size_t path_count) {
    CHECK_GE(path_count, 1u);
    uint64_t bytes = map_bytes_of(durable_of(places)) * path_count;
    for (const PlaceSpec& place : places) bytes += place.size_bytes * count_of(place.copies);
    return bytes;
}

Result<StoreFiles> make_store_files(const StoreOptions& options, std::vector<std::string>& notes) {
    CHECK(options.opening != Opening::resume);
    const Role role = options.opening == Opening::successor ? Role::successor : Role::truth;
    const std::vector<PlaceSpec> durable = durable_of(options.places);
    Status status = check_budget(options, store_bytes_of(options.places, options.paths.size()));
    if (!status.ok()) return status.error();
    Result<Placement> placement = place_with_room(options, map_bytes_of(durable), role, notes);
    if (!placement) return placement.error();
    StoreFiles files{.folders = {}, .placement = std::move(*placement), .journal = {}};
    CHECK(find_fault(files.placement) == nullptr);
    MapSpec spec{.uuid = random_uuid(),
                 .path_index = 0,
                 .run_name = options.run_name,
                 .paths = absolute(options.paths),
                 .predecessor = {}};
    status = check_path_table(spec.paths);
    if (status.ok() && role == Role::successor) {
        Result<Predecessor> predecessor = find_predecessor(options);
        if (!predecessor) return predecessor.error();
        spec.predecessor = std::move(*predecessor);
    }
    if (status.ok()) status = check_path_table(spec.predecessor.paths);
    if (!status.ok()) return status.error();

    auto folders = lock_all(options, role, Existence::may_be_made);
    if (!folders) return folders.error();
    files.folders = std::move(*folders);
    status = lay_out_all(files, spec, durable, notes);
    if (status.ok()) status = write_notice(spec, options.operations);
    if (!status.ok()) {
        remove_new(files.folders);
        return status.error();
    }
    CHECK(files.journal != nullptr);
    return files;
}

Result<StoreFiles> resume_store_files(const StoreOptions& options,
                                      std::vector<std::string>& notes) {
    CHECK(options.opening == Opening::resume);
    if (Status status = check_all_there(options); !status) return status.error();
    auto folders = lock_all(options, Role::truth, Existence::must_exist);
    if (!folders) return folders.error();
    std::vector<MapImage> maps;
    for (const auto& folder : *folders) {
        Result<MapImage> map = read_map(*folder);
        if (!map) return map.error();
        maps.push_back(std::move(*map));
    }
    const Result<std::vector<size_t>> order = order_of(maps, options.paths);
    if (!order) return order.error();
    const MapImage& first = maps[(*order)[0]];
    const std::vector<PlaceSpec> durable = places_of(first);
    StoreFiles files{.folders = {}, .placement = {}, .journal = {}};
    std::vector<std::string> paths;
    for (const size_t position : *order) {
        paths.push_back(options.paths[position]);
        files.folders.push_back(std::move((*folders)[position]));
    }
    Status status = check_not_moved(files.folders[0]->folder, options.run_name, options.operations);
    if (status.ok()) {
        status = check_places(durable_of(options.places), durable, files.folders[0]->folder);
    }
    if (!status.ok()) return status.error();
    const Superblock& head = first.superblock;
    files.journal = std::make_unique<Journal>(files.folders[0]->map, head);
    status = files.journal->read();
    if (status.ok()) status = check_expected(options, *files.journal, files.folders[0]->folder);
    if (!status.ok()) return status.error();
    files.placement = lay_places(options.places, pattern_of(head), head.stripe_bytes);
    status = check_budget(options, store_bytes_of(options.places, paths.size()));
    if (status.ok()) {
        status = check_room(options, paths, files.placement, head.map_bytes, Role::truth);
    }
    for (size_t path = 0; path < paths.size() && status.ok(); path++) {
        status = lay_out_scratch(*files.folders[path], maps[(*order)[path]],
                                 files.placement.path_bytes[path], notes);
    }
    if (!status.ok()) return status.error();
    return files;
}

Result<std::vector<size_t>> order_of(const std::vector<MapImage>& maps,
                                     const std::vector<std::string>& paths) {
    CHECK(!maps.empty());
    CHECK_EQ(maps.size(), paths.size());
    const Superblock& some = maps[0].superblock;
    std::vector<size_t> order(some.path_count, maps.size());
    const auto wrong = [&](std::string cause) {
        return Error{ErrorCode::bad_data,
                     fmt::format("the folders in {} are not one store", index_list(paths)),
                     std::move(cause)};
    };
    for (size_t position = 0; position < maps.size(); position++) {
        const Superblock& head = maps[position].superblock;
        if (head.uuid != some.uuid) {
            return wrong(
                fmt::format("{} and {} hold different stores of the run: name the paths "
                            "of one of them",
                            paths[0], paths[position]));
        }
        CHECK_EQ(head.path_count, some.path_count);
        if (order[head.path_index] != maps.size()) {
            return wrong(fmt::format("{} and {} hold the same part of it: one is a copy",
                                     paths[order[head.path_index]], paths[position]));
        }
        order[head.path_index] = position;
    }
    const std::vector<std::string> known = paths_of(maps[0]);
    std::vector<std::string> missing;
    for (size_t index = 0; index < order.size(); index++) {
        if (order[index] == maps.size()) missing.push_back(known[index]);
    }
    if (missing.empty()) return order;
    return wrong(
        fmt::format("the store is on {} paths, and without its part in {} (the name when "
                    "it was made) nothing can be read: mount and name them all (then headrace "
                    "store move brings it to fewer)",
                    some.path_count, index_list(missing)));
}

}  // namespace headrace::nvme
