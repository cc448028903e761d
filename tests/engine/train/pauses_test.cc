// Goal: a run evaluates, saves and ends after the steps that its settings say, however it got
// there. Method: all pauses of small runs are listed, from the start and from a step in between.
#include "engine/train/pauses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace headrace::engine {
namespace {

using offload::CommitAt;
using ::testing::ElementsAre;

struct Stops {
    std::vector<int64_t> pauses;
    std::vector<int64_t> evaluations;  // the one before the first step is among them
    std::vector<int64_t> saves;
};

Stops stops_of(const Pauses& pauses, int64_t step_count, int64_t begun_at = 0) {
    Stops stops;
    if (pauses.evaluates_after(begun_at)) stops.evaluations.push_back(begun_at);
    for (int64_t done = begun_at; done < step_count;) {
        done = pauses.next(done);
        stops.pauses.push_back(done);
        if (pauses.saves_after(done)) stops.saves.push_back(done);
        if (pauses.evaluates_after(done)) stops.evaluations.push_back(done);
    }
    return stops;
}

RunConfig every(std::optional<int64_t> eval_steps, std::optional<int64_t> save_steps) {
    RunConfig config;
    config.eval_steps = eval_steps;
    config.save_steps = save_steps;
    return config;
}

TEST(PausesTest, evaluations_and_saves_keep_their_own_stride) {
    const Pauses pauses(every(4, 3), CommitAt::saves, 10);
    const Stops stops = stops_of(pauses, 10);
    EXPECT_THAT(stops.pauses, ElementsAre(3, 4, 6, 8, 9, 10));
    EXPECT_THAT(stops.evaluations, ElementsAre(0, 4, 8, 10));
    EXPECT_THAT(stops.saves, ElementsAre(3, 6, 9, 10));
    EXPECT_TRUE(pauses.saves());
}

// Wherever it was stopped, it goes on with the same pauses.
TEST(PausesTest, a_resumed_run_pauses_where_the_whole_one_does) {
    const Stops stops = stops_of(Pauses(every(4, 3), CommitAt::saves, 10), 10, 5);
    EXPECT_THAT(stops.pauses, ElementsAre(6, 8, 9, 10));
    EXPECT_THAT(stops.evaluations, ElementsAre(8, 10));
    EXPECT_THAT(stops.saves, ElementsAre(6, 9, 10));
    EXPECT_THAT(stops_of(Pauses(every(4, 3), CommitAt::saves, 10), 10, 10).evaluations,
                ElementsAre(10));
}

TEST(PausesTest, without_strides_there_is_the_end) {
    const Stops saving = stops_of(Pauses(every({}, {}), CommitAt::saves, 5), 5);
    EXPECT_THAT(saving.pauses, ElementsAre(5));
    EXPECT_THAT(saving.evaluations, ElementsAre(0, 5));
    EXPECT_THAT(saving.saves, ElementsAre(5));
}

// A run that commits every step, or never, has nothing to save; save_steps does not stop it.
TEST(PausesTest, only_a_run_that_commits_at_saves_saves) {
    for (const std::optional<CommitAt> commit_at :
         {std::optional(CommitAt::every_step), std::optional<CommitAt>()}) {
        const Pauses pauses(every(4, 3), commit_at, 10);
        const Stops stops = stops_of(pauses, 10);
        EXPECT_THAT(stops.pauses, ElementsAre(4, 8, 10));
        EXPECT_TRUE(stops.saves.empty());
        EXPECT_FALSE(pauses.saves());
    }
}

}  // namespace
}  // namespace headrace::engine
