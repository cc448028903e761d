#include "nvme/store_tools.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <future>
#include <memory>
#include <utility>

#include "nvme/io_buffer.h"
#include "nvme/nvme_store.h"
#include "nvme/probe.h"
#include "nvme/promotion.h"
#include "nvme/store_facts.h"
#include "offload/check.h"

namespace headrace::nvme {

using offload::Direction;
using offload::Error;
using offload::ErrorCode;
using offload::PlaceId;
using offload::PlaceSpec;
using offload::Result;
using offload::Status;

namespace {

Result<StoreFacts> look_for_commit(const std::vector<std::string>& paths,
                                   const std::string& run_name, const FileOperations& operations) {
    Result<std::optional<StoreFacts>> facts = look_at_store(paths, run_name, operations);
    if (!facts) return facts.error();
    if (facts->has_value() && (*facts)->newest) return std::move(**facts);
    return Error{
        ErrorCode::bad_data,
        fmt::format("there is no store '{}' with a commit on {}", run_name, fmt::join(paths, ", ")),
        "see headrace store list"};
}

uint64_t largest_of(const std::vector<PlaceSpec>& places) {
    uint64_t bytes = offload::page_bytes;
    for (const PlaceSpec& place : places) bytes = std::max(bytes, place.size_bytes);
    return bytes;
}

// The ids of the places that a commit finds written, and their bytes together.
struct Written {
    std::vector<PlaceId> places;
    uint64_t size_bytes = 0;
};
Written written_of(const StoreFacts& facts) {
    Written written;
    CHECK_EQ(facts.places.size(), facts.newest->places.size());
    for (size_t place = 0; place < facts.places.size(); place++) {
        if (!facts.newest->places[place].is_written) continue;
        written.places.push_back(static_cast<PlaceId>(place));
        written.size_bytes += facts.places[place].size_bytes;
    }
    return written;
}

std::future<Status> begin(offload::Store& store, Direction direction, PlaceId place,
                          std::span<std::byte> memory, std::optional<uint64_t> sum = {}) {
    auto promise = std::make_shared<std::promise<Status>>();
    std::future<Status> future = promise->get_future();
    store.start({.direction = direction,
                 .place = place,
                 .memory = memory,
                 .done = [promise](Status status) { promise->set_value(std::move(status)); },
                 .sum = sum});
    return future;
}

// Two buffers: a place is written while the next one is read. What was read was verified.
Status copy_places(NvmeStore& source, NvmeStore& target, const StoreFacts& facts,
                   const Move& move) {
    const Written written = written_of(facts);
    const uint64_t buffer_bytes = largest_of(facts.places);
    const std::array<IoBuffer, 2> buffers = {IoBuffer(buffer_bytes), IoBuffer(buffer_bytes)};
    std::future<Status> writing;
    uint64_t done_bytes = 0;
    Status outcome;
    for (size_t i = 0; i < written.places.size() && outcome.ok(); i++) {
        const PlaceId place = written.places[i];
        const auto memory = buffers[i % 2].first(facts.places[place].size_bytes);
        outcome = begin(source, Direction::read, place, memory).get();
        if (writing.valid()) {
            Status status = writing.get();
            if (outcome.ok()) outcome = std::move(status);
        }
        if (!outcome.ok()) break;
        writing = begin(target, Direction::write, place, memory, facts.newest->places[place].sum);
        done_bytes += memory.size();
        if (move.progress) move.progress(done_bytes, written.size_bytes);
    }
    if (writing.valid()) {
        Status status = writing.get();
        if (outcome.ok()) outcome = std::move(status);
    }
    return outcome;
}

// Those of the store, if it has all of these paths, whatever they are called now; else none.
std::vector<uint32_t> kept_weights(const Move& move, const StoreFacts& facts) {
    CHECK_EQ(facts.paths.size(), facts.weights.size());
    std::vector<uint32_t> weights;
    for (const std::string& path : move.to_paths) {
        for (size_t own = 0; own < facts.paths.size(); own++) {
            std::error_code failure;
            if (!std::filesystem::equivalent(path, facts.paths[own], failure)) continue;
            weights.push_back(facts.weights[own]);
            break;
        }
    }
    return weights.size() == move.to_paths.size() ? weights : std::vector<uint32_t>{};
}

Result<std::vector<uint32_t>> weights_after(const Move& move, const StoreFacts& facts) {
    if (!move.weights.empty()) return move.weights;
    std::vector<uint32_t> kept = kept_weights(move, facts);
    if (!kept.empty()) return kept;
    if (!are_on_several_drives(move.to_paths, move.drives_of)) return std::vector<uint32_t>{};
    ProbeOptions probe{.paths = move.to_paths,
                       .run_name = fmt::format("measure.{}", getpid()),
                       .engine = move.engine,
                       .stuck_after = move.stuck_after,
                       .on_stuck = move.on_stuck,
                       .operations = move.operations};
    const uint64_t pool_bytes = DriveProbe::pool_bytes_min(probe);
    const IoBuffer pool(pool_bytes);
    probe.pool = pool.first(pool_bytes);
    Result<Striping> striping = find_striping({.probe = std::move(probe),
                                               .cache_file = move.drive_cache,
                                               .now_unix_s = std::time(nullptr)});
    if (!striping) return striping.error();
    for (const std::string& note : striping->notes) {
        if (move.note) move.note(note);
    }
    return std::move(striping->weights);
}

// The successor's uuid. Both stores are closed when this returns; an Error leaves no successor.
Result<Uuid> fill_successor(const Move& move, const StoreFacts& facts) {
    auto source = open_store({.paths = move.from_paths,
                              .run_name = move.run_name,
                              .places = facts.places,
                              .engine = move.engine,
                              .stuck_after = move.stuck_after,
                              .on_stuck = move.on_stuck,
                              .operations = move.operations,
                              .opening = Opening::resume,
                              .expected = facts.newest_id()});
    if (!source) return source.error();
    Result<std::vector<uint32_t>> weights = weights_after(move, facts);
    if (!weights) return weights.error();
    auto target = open_store({.paths = move.to_paths,
                              .run_name = move.run_name,
                              .places = facts.places,
                              .weights = std::move(*weights),
                              .engine = move.engine,
                              .block_bytes = facts.stripe_bytes,
                              .stuck_after = move.stuck_after,
                              .on_stuck = move.on_stuck,
                              .operations = move.operations,
                              .opening = Opening::successor,
                              .predecessor = {.uuid = facts.uuid, .paths = facts.known_paths}});
    if (!target) return target.error();
    for (const std::string& note : (*target)->notes()) {
        if (move.note) move.note(note);
    }
    const Uuid uuid = (*target)->uuid();
    Status status = copy_places(**source, **target, facts, move);
    if (status.ok()) status = commit_and_wait(**target, facts.newest->record);
    if (status.ok()) return uuid;
    target->reset();
    static_cast<void>(discard_successor(move.to_paths, move.run_name, uuid, move.operations));
    return status.error();
}

}  // namespace

Result<Verified> verify_store(const Verify& verify) {
    const Result<StoreFacts> facts =
        look_for_commit(verify.paths, verify.run_name, verify.operations);
    if (!facts) return facts.error();
    auto store = open_store({.paths = verify.paths,
                             .run_name = verify.run_name,
                             .places = facts->places,
                             .stuck_after = verify.stuck_after,
                             .on_stuck = verify.on_stuck,
                             .operations = verify.operations,
                             .opening = Opening::resume,
                             .expected = facts->newest_id()});
    if (!store) return store.error();
    const Written written = written_of(*facts);
    const IoBuffer buffer(largest_of(facts->places));
    Verified verified{.attempts = facts->newest->record.attempts,
                      .place_count = facts->places.size(),
                      .written_bytes = written.size_bytes,
                      .damaged = {}};
    for (const PlaceId place : written.places) {
        const PlaceSpec& spec = facts->places[place];
        const Status status =
            transfer_and_wait(**store, Direction::read, place, buffer.first(spec.size_bytes));
        if (verify.report) verify.report(spec.name, status);
        if (status.ok()) continue;
        if (status.error().code != ErrorCode::bad_data) return status.error();
        verified.damaged.push_back(spec.name);
    }
    return verified;
}

Status move_store(const Move& move) {
    CHECK(!move.to_paths.empty());
    const Result<StoreFacts> facts =
        look_for_commit(move.from_paths, move.run_name, move.operations);
    if (!facts) return facts.error();
    // What an earlier move left on the new paths is ended or removed first.
    if (Status status = finish_promotion(move.to_paths, move.run_name, move.operations); !status)
        return status;
    const Result<Uuid> successor = fill_successor(move, *facts);
    if (!successor) {
        return wrap(successor.error(), fmt::format("cannot move the store '{}' to {}",
                                                   move.run_name, fmt::join(move.to_paths, ", ")));
    }
    return promote_store(move.to_paths, move.run_name, *successor, move.operations);
}

}  // namespace headrace::nvme
