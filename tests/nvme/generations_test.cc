// Goal: no write ever goes to what the newest commit names, and commits name what was written.
// Method: the pure bookkeeping, driven by hand, and by a thousand random steps against a model in
// which every copy remembers the step that wrote it.
#include "nvme/generations.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace headrace::nvme {
namespace {

constexpr uint64_t page = 4096;

const std::vector<offload::PlaceSpec>& places() {
    static const std::vector<offload::PlaceSpec> specs = {
        {.name = "hi", .size_bytes = 2 * page, .copies = offload::Copies::two},
        {.name = "act", .size_bytes = 2 * page, .copies = offload::Copies::scratch},
        {.name = "m", .size_bytes = 2 * page, .copies = offload::Copies::two}};
    return specs;
}

uint8_t write(Generations& generations, offload::PlaceId place, uint64_t sum) {
    const uint8_t copy = generations.begin_write(place);
    generations.end_write(place, {.copy = copy, .size_bytes = 2 * page, .sum = sum}, true);
    return copy;
}

void sync(Generations& generations) {
    generations.end_sync(0, generations.begin_sync());
}

std::vector<PlaceTruth> commit(Generations& generations) {
    sync(generations);
    std::vector<PlaceTruth> truths = generations.begin_record();
    generations.end_seal();
    return truths;
}

TEST(Generations, ACommitNamesTheDurablePlacesInOrder) {
    Generations generations(places(), 1);
    EXPECT_EQ(generations.durable(), (std::vector<offload::PlaceId>{0, 2}));
    write(generations, 1, 0);
    const uint8_t copy = write(generations, 2, 55);
    const std::vector<PlaceTruth> truths = commit(generations);
    EXPECT_EQ(truths, (std::vector<PlaceTruth>{{}, {.is_written = true, .copy = copy, .sum = 55}}));
}

TEST(Generations, WritesBetweenCommitsSpareWhatIsCommitted) {
    Generations generations(places(), 1);
    write(generations, 0, 1);
    const uint8_t kept = commit(generations)[0].copy;
    for (uint64_t round = 0; round < 4; round++) {
        EXPECT_EQ(write(generations, 0, 2 + round), 1 - kept);
    }
    EXPECT_EQ(commit(generations)[0],
              (PlaceTruth{.is_written = true, .copy = static_cast<uint8_t>(1 - kept), .sum = 5}));
    EXPECT_EQ(write(generations, 0, 9), kept) << "the commit before that is released";
}

// One copy is written in place; while a commit names it, only after withdraw.
TEST(Generations, OneCopyIsWrittenWhileNoCommitNamesIt) {
    const std::vector<offload::PlaceSpec> one = {
        {.name = "hi", .size_bytes = 2 * page, .copies = offload::Copies::one}};
    Generations generations(one, 1);
    EXPECT_EQ(write(generations, 0, 1), 0);
    EXPECT_EQ(write(generations, 0, 2), 0);
    const std::vector<PlaceTruth> named = {{.is_written = true, .copy = 0, .sum = 2}};
    EXPECT_EQ(commit(generations), named);
    EXPECT_DEATH(generations.begin_write(0), "sealed_copy");
    generations.withdraw();
    EXPECT_EQ(write(generations, 0, 3), 0);
    Generations resumed(one, 1);
    Commit found;
    found.places = named;
    resumed.restore(found);
    EXPECT_DEATH(resumed.begin_write(0), "sealed_copy");
    EXPECT_EQ(resumed.begin_read(0, 2 * page).sum, std::optional<uint64_t>(2));
    resumed.end_read(0, true);
    resumed.withdraw();
    EXPECT_EQ(resumed.begin_write(0), 0);
}

TEST(Generations, AFailedWriteKeepsTheTruthOrIsTold) {
    Generations generations(places(), 1);
    write(generations, 0, 1);
    const uint8_t kept = commit(generations)[0].copy;
    const uint8_t copy = generations.begin_write(0);
    generations.end_write(0, {.copy = copy, .size_bytes = 2 * page, .sum = 2}, false);
    Generations::Reading reading = generations.begin_read(0, 2 * page);
    generations.end_read(0, false);
    EXPECT_EQ(reading.copy, kept);
    EXPECT_FALSE(reading.sum.has_value());
    // A second write of the same step goes over the first: if it fails, its sum must be looked at.
    write(generations, 0, 3);
    generations.begin_write(0);
    generations.end_write(0, {.copy = copy, .size_bytes = 2 * page, .sum = 4}, false);
    reading = generations.begin_read(0, 2 * page);
    EXPECT_EQ(reading.sum, std::optional<uint64_t>(3));
    generations.end_read(0, false);
}

TEST(Generations, AResumeVerifiesTheFirstWholeRead) {
    Generations generations(places(), 1);
    Commit commit;
    commit.places = {{.is_written = true, .copy = 0, .sum = 7}, {}};
    generations.restore(commit);
    Generations::Reading reading = generations.begin_read(0, page);
    EXPECT_EQ(reading.size_bytes, page);
    EXPECT_FALSE(reading.sum.has_value()) << "a prefix has no sum";
    generations.end_read(0, false);
    reading = generations.begin_read(0, 2 * page);
    EXPECT_EQ(reading.sum, std::optional<uint64_t>(7));
    generations.end_read(0, true);
    EXPECT_FALSE(generations.begin_read(0, 2 * page).sum.has_value()) << "once";
    generations.end_read(0, false);
    EXPECT_EQ(generations.begin_read(2, 2 * page).size_bytes, 0u) << "never written: zeros";
    generations.end_read(2, false);
    EXPECT_EQ(generations.begin_write(0), 1) << "the resumed commit is spared";
}

// The model: per copy the step that wrote it. After every write, all that the newest commit names
// must still be there; and a commit names the last write of each place.
TEST(Generations, AThousandRandomStepsKeepTheNewestCommit) {
    Generations generations(places(), 1);
    std::mt19937_64 random(1);
    std::map<std::pair<offload::PlaceId, uint8_t>, uint64_t> bytes;
    std::map<offload::PlaceId, uint64_t> last;
    std::vector<PlaceTruth> newest(2);
    for (uint64_t step = 1; step <= 1000; step++) {
        if (random() % 4 == 0) {
            newest = commit(generations);
        } else {
            const offload::PlaceId place = generations.durable()[random() % 2];
            bytes[{place, write(generations, place, step)}] = step;
            last[place] = step;
            const Generations::Reading reading = generations.begin_read(place, 2 * page);
            generations.end_read(place, false);
            const uint64_t read = bytes[{place, reading.copy}];
            ASSERT_EQ(read, last[place]);
        }
        for (size_t i = 0; i < newest.size(); i++) {
            if (!newest[i].is_written) continue;
            const uint64_t there = bytes[{generations.durable()[i], newest[i].copy}];
            ASSERT_EQ(there, newest[i].sum) << "step " << step;
        }
    }
}

TEST(GenerationsDeathTest, MovesOutOfOrderAreBugs) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    Generations generations(places(), 1);
    write(generations, 0, 1);
    EXPECT_DEATH(generations.begin_record(), "CHECK failed") << "not synced";
    sync(generations);
    generations.begin_record();
    EXPECT_DEATH(generations.begin_record(), "CHECK failed") << "not sealed";
    EXPECT_DEATH(generations.begin_write(0), "CHECK failed") << "not sealed";
    generations.end_seal();
    const uint8_t copy = generations.begin_write(0);
    generations.end_write(0, {.copy = copy, .size_bytes = page, .sum = 1}, true);
    sync(generations);
    EXPECT_DEATH(generations.begin_record(), "CHECK failed") << "not written whole";
}

}  // namespace
}  // namespace headrace::nvme
