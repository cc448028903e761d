// Goal: turns of a measurement are fair, and what they say together is right.
// Method: small numbers by hand.
#include "engine/rehearse/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Rounds, EveryOtherOneGoesBackwards) {
    EXPECT_THAT(order_of_round(0, 3), ElementsAre(0u, 1u, 2u));
    EXPECT_THAT(order_of_round(1, 3), ElementsAre(2u, 1u, 0u));
    EXPECT_THAT(order_of_round(2, 3), ElementsAre(0u, 1u, 2u));
    EXPECT_THAT(order_of_round(1, 0), IsEmpty());
}

TEST(Rounds, MedianOfAnEvenNumberIsBetweenTheTwoInTheMiddle) {
    EXPECT_EQ(median_of({3, 1, 2}), 2);
    EXPECT_EQ(median_of({4, 1}), 2.5);
    EXPECT_EQ(median_of({7}), 7);
}

TEST(Rounds, RatiosAreTakenRoundByRound) {
    EXPECT_THAT(ratios({2, 9}, {4, 3}), ElementsAre(0.5, 3));
    EXPECT_DEATH(ratios({1}, {1, 2}), "size");
    EXPECT_DEATH(median_of({}), "empty");
}

}  // namespace
}  // namespace headrace::engine
