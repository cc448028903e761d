// Goal: the lane that a step is held against is the one that needs longest alone, by the rates
// measured around it, and drives are given the faster of their two ways. Method: seconds worked out
// by hand.
#include "engine/cli/step_ceilings.h"

#include <gtest/gtest.h>

namespace headrace::engine {
namespace {

using offload::LaneKind;

// 12 bytes read and 8 written; 30 parameters updated; 4 seconds of the card and 1 of the link.
Rehearsal rehearsal() {
    Rehearsal rehearsal;
    RehearsedStep& part = rehearsal.part;
    part.read_bytes = 12;
    part.written_bytes = 8;
    part.updated_parameter_count = 30;
    part.forecast.alone_s[static_cast<size_t>(LaneKind::gpu)] = 4;
    part.forecast.alone_s[static_cast<size_t>(LaneKind::h2d)] = 1;
    return rehearsal;
}

void expect_longest(const StepRates& rates, const std::string& name, double seconds) {
    const LongestLane longest = longest_lane(rehearsal(), rates);
    EXPECT_EQ(longest.name, name);
    EXPECT_DOUBLE_EQ(longest.seconds, seconds);
}

TEST(StepCeilings, TheLongestLaneIsTheOneThatNeedsMostAlone) {
    const StepRates fast = {
        .read_bytes = 100, .written_bytes = 100, .mixed_bytes = 100, .updated_parameters = 100};
    expect_longest(fast, "gpu", 4);
    StepRates slow_update = fast;
    slow_update.updated_parameters = 6;
    expect_longest(slow_update, "update", 5);
    StepRates no_drives = fast;
    no_drives.read_bytes = no_drives.written_bytes = no_drives.mixed_bytes = 0;
    expect_longest(no_drives, "gpu", 4);
}

TEST(StepCeilings, DrivesTakeTurnsOrMixWhicheverIsShorter) {
    const StepRates turns = {
        .read_bytes = 2, .written_bytes = 4, .mixed_bytes = 2, .updated_parameters = 100};
    expect_longest(turns, "drives", 12.0 / 2 + 8.0 / 4);
    StepRates mixes = turns;
    mixes.mixed_bytes = 4;
    expect_longest(mixes, "drives", 20.0 / 4);
}

TEST(StepCeilings, WhatLiesBetweenTwoMeasurementsHasTheRateOfBothHalves) {
    const StepRates before = {.read_bytes = 1, .written_bytes = 3, .updated_parameters = 2};
    const StepRates after = {.read_bytes = 3, .written_bytes = 3, .updated_parameters = 6};
    const StepRates middle = between(before, after);
    EXPECT_DOUBLE_EQ(middle.read_bytes, 1.5) << "as many bytes at 1 as at 3 a second";
    EXPECT_DOUBLE_EQ(middle.written_bytes, 3);
    EXPECT_DOUBLE_EQ(middle.mixed_bytes, 0) << "no drives";
    EXPECT_DOUBLE_EQ(middle.updated_parameters, 3);
}

}  // namespace
}  // namespace headrace::engine
