// CrashRun: a small store on a CrashDisk, what was committed to it, and the look at every image
// that a crash could leave. What the crash tests share.
//
// A place holds bytes that follow from its name and a number, its *version* (0: zeros). A commit is
// remembered by its number, from 1; marks in the notes say when its record was begun (2 * number)
// and when its seal returned (2 * number + 1). So at each cut it is known which commits may be
// found: those from the last that returned to the last that was begun.
//
// A failure prints the cut and the image; HEADRACE_CUT and HEADRACE_SEED, set to them, look at this
// cut alone.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "nvme/nvme_store.h"
#include "nvme/store_facts.h"
#include "tests/nvme/crash_disk.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {

inline uint64_t number_of_environment(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Memory is as fast as it gets: an image is a few files, and there are thousands.
inline std::string fast_folder() {
    return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : testing::TempDir();
}

class CrashRun {
  public:
    // By name of place; those that are missing were never written.
    using Versions = std::map<std::string, uint64_t>;
    struct Made {
        offload::CommitRecord record;
        Versions versions;
    };

    CrashRun() : disk_(folder_.path()) {}

    CrashDisk& disk() { return disk_; }
    uint64_t seed() const { return seed_; }
    uint64_t image_count() const { return image_count_; }
    const std::vector<Made>& commits() const { return commits_; }

    static StoreOptions options(std::vector<std::string> paths,
                                std::vector<offload::PlaceSpec> places, Opening opening) {
        StoreOptions options{
            .paths = std::move(paths), .run_name = "run", .places = std::move(places)};
        options.engine = IoEngine::threads;
        options.depth = 1;
        options.block_bytes = offload::page_bytes;
        options.opening = opening;
        options.operations.sync_data = [](int) { return 0; };  // images: nothing to lose
        options.operations.sync_folder = [](const std::string&) { return 0; };
        return options;
    }
    std::unique_ptr<NvmeStore> open_watched(StoreOptions options) {
        options.operations = disk_.operations();
        auto store = open_store(std::move(options));
        CHECK_TEXT(store.ok(), store.ok() ? "" : store.error().text());
        return std::move(*store);
    }

    static PageBuffer bytes_of(const offload::PlaceSpec& place, uint64_t version) {
        PageBuffer buffer(place.size_bytes);
        buffer.fill(0);
        if (version > 0) buffer.fill_random(std::hash<std::string>()(place.name) + version);
        return buffer;
    }
    void write(NvmeStore& store, offload::PlaceId place, uint64_t version) {
        const offload::PlaceSpec& spec = store.places()[place];
        const offload::Status status = write_place(store, place, bytes_of(spec, version).span());
        CHECK_TEXT(status.ok(), status.ok() ? "" : status.error().text());
        if (is_durable(spec.copies)) versions_[spec.name] = version;
    }
    // The moves of a commit, each called when the one before is done.
    void record(NvmeStore& store, uint64_t attempts) {
        commits_.push_back({.record = {.attempts = attempts,
                                       .updates = attempts / 2,
                                       .gradient_scale = 0.25,
                                       .scale_steps = attempts + 1,
                                       .numerics = fmt::format("numerics {}", attempts),
                                       .payload = fmt::format("{}", commits_.size() + 1)},
                            .versions = versions_});
        disk_.mark(static_cast<int64_t>(2 * commits_.size()));
        wait([&](offload::Done done) { store.record(commits_.back().record, std::move(done)); });
    }
    void seal(NvmeStore& store) {
        wait([&](offload::Done done) { store.seal(std::move(done)); });
        disk_.mark(static_cast<int64_t>(2 * commits_.size() + 1));
    }
    void commit(NvmeStore& store, uint64_t attempts) {
        for (uint32_t path = 0; path < store.path_count(); path++) {
            wait([&](offload::Done done) { store.sync(path, std::move(done)); });
        }
        record(store, attempts);
        seal(store);
    }
    static void wait(const std::function<void(offload::Done)>& begin) {
        const offload::Status status = offload::wait_for(begin);
        CHECK_TEXT(status.ok(), status.ok() ? "" : status.error().text());
    }

    // What may be found at a cut.
    struct Found {
        size_t at_least = 0;  // commit numbers; 0: none
        size_t at_most = 0;
        size_t image = 0;  // within the cut
    };
    // Restores each image of each cut from `first_cut` on and has it looked at, until a failure.
    void for_every_image(size_t first_cut, const std::function<void(const Found&)>& look) {
        disk_.settle();
        const uint64_t wanted_cut = number_of_environment("HEADRACE_CUT", ~uint64_t{0});
        Found found;
        for (CrashCursor cursor(disk_);; cursor.advance()) {
            const bool is_mark = !cursor.is_at_end() && cursor.next().kind == Note::Kind::mark;
            const size_t cut = cursor.position();
            const bool is_wanted = wanted_cut == ~uint64_t{0} || wanted_cut == cut;
            if (!is_mark && cut >= first_cut && is_wanted) look_at_cut(cursor, found, look);
            if (testing::Test::HasFailure() || cursor.is_at_end()) return;
            if (!is_mark) continue;
            const auto mark = static_cast<size_t>(cursor.next().mark);
            (mark % 2 == 0 ? found.at_most : found.at_least) = mark / 2;
        }
    }

    // That the store is at one of the commits that may be found, whole. Returns its number.
    size_t expect_commit(NvmeStore& store, const Found& found) {
        const offload::CommitRecord& record = store.recovered()->record;
        const size_t number = std::strtoull(record.payload.c_str(), nullptr, 10);
        EXPECT_GE(number, found.at_least);
        EXPECT_LE(number, found.at_most);
        if (testing::Test::HasFailure()) return 0;
        const Made& made = commits_.at(number - 1);
        EXPECT_EQ(record, made.record);
        expect_versions(store, made.versions);
        return number;
    }
    static void expect_versions(NvmeStore& store, const Versions& versions) {
        for (offload::PlaceId place = 0; place < store.places().size(); place++) {
            const offload::PlaceSpec& spec = store.places()[place];
            if (!is_durable(spec.copies)) continue;
            const auto version = versions.find(spec.name);
            const PageBuffer read(spec.size_bytes);
            const offload::Status status = read_place(store, place, read.span());
            ASSERT_TRUE(status.ok()) << status.error().text();
            const bool is_same =
                read == bytes_of(spec, version == versions.end() ? 0 : version->second);
            EXPECT_TRUE(is_same) << spec.name << " is not as it was committed";
        }
    }

  private:
    void look_at_cut(const CrashCursor& cursor, Found found,
                     const std::function<void(const Found&)>& look) {
        for (const std::vector<Fate>& fates : fates_at(cursor, seed_)) {
            const Image image = cursor.image(fates);
            if (!seen_.emplace(image.hash(), found.at_least, found.at_most).second) continue;
            image.restore(disk_.folder());
            image_count_++;
            look(found);
            if (testing::Test::HasFailure()) {
                std::string text;
                for (size_t i = 0; i < fates.size(); i++) {
                    text += fmt::format("  {}: {} {}\n", describe(*cursor.pending()[i]),
                                        static_cast<int>(fates[i].kind), fates[i].number);
                }
                ADD_FAILURE() << "HEADRACE_CUT=" << cursor.position() << " HEADRACE_SEED=" << seed_
                              << ": image " << found.image << ", before "
                              << (cursor.is_at_end() ? "the end" : describe(cursor.next()))
                              << "; pending, each with its fate (0 kept, 1 lost, 2 torn behind, 3 "
                                 "scattered by seed):\n"
                              << text;
                return;
            }
            found.image++;
        }
    }

    const uint64_t seed_ = number_of_environment("HEADRACE_SEED", 1);
    TempFolder folder_{fast_folder()};
    CrashDisk disk_;
    Versions versions_;
    std::vector<Made> commits_;
    std::set<std::tuple<size_t, size_t, size_t>> seen_;  // hash, and what may be found
    uint64_t image_count_ = 0;
};

}  // namespace headrace::nvme
