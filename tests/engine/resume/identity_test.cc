// Goal: what a commit's record says comes back as it was, and a resume of another run is refused
// with every difference by name.
// Method: round trips; one fact changed at a time; records that nobody wrote.
#include "engine/resume/identity.h"

#include <gmock/gmock.h>

#include <cmath>

namespace headrace::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Identity some_identity() {
    return {.numerics = {{"torch", "2.5.1"}, {"seed", "42"}},
            .job = {{"model", "ab\"cd"}, {"train_data", "ef"}},
            .recipe = {{"learning_rate", "1e-05"}, {"weight_decay", "0"}},
            .part_bytes = 4096};
}

Progress some_progress() {
    return {.attempts = 7,
            .updates = 5,
            .skipped_count = 2,
            .skipped_in_a_row = 1,
            .loss_scale = {.scale = 4096, .good_step_count = 3, .hysteresis_left = 2},
            .history = std::string(64, 'a')};
}

TEST(Identity, ARecordComesBackAsItWas) {
    const offload::CommitRecord record = record_of(some_identity(), some_progress());
    EXPECT_EQ(record.attempts, 7u);
    EXPECT_EQ(record.updates, 5u);
    EXPECT_EQ(record.gradient_scale, 4096);
    EXPECT_EQ(record.scale_steps, 3u);
    EXPECT_LE(record.numerics.size(), offload::numerics_bytes_max);
    EXPECT_LE(record.payload.size(), offload::payload_bytes_max);
    const auto saved = read_record(record);
    ASSERT_TRUE(saved.ok()) << saved.error().text();
    EXPECT_EQ(saved->identity, some_identity());
    EXPECT_EQ(saved->progress, some_progress());
    EXPECT_TRUE(check_same_run(saved->identity, some_identity()).ok());
    EXPECT_THAT(recipe_changes(saved->identity, some_identity()), ElementsAre());
}

TEST(Identity, WhatDiffersIsRefusedByName) {
    Identity now = some_identity();
    now.numerics[0].value = "2.6.0";
    now.job[1].value = "gh";
    now.recipe[0].value = "2e-05";
    now.part_bytes = 8192;
    const auto refused = check_same_run(some_identity(), now);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, offload::ErrorCode::bad_data);
    EXPECT_THAT(refused.error().text(),
                AllOf(HasSubstr("torch was 2.5.1 and is 2.6.0"), HasSubstr("train_data was ef"),
                      Not(HasSubstr("seed")), Not(HasSubstr("learning_rate"))));
    EXPECT_THAT(recipe_changes(some_identity(), now),
                ElementsAre("learning_rate was 1e-05 and is 2e-05"));
}

TEST(Identity, AFactThatOnlyOneSideHasIsADifference) {
    Identity now = some_identity();
    now.numerics.push_back({"head_chunk", "128"});
    const auto refused = check_same_run(some_identity(), now);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().text(), HasSubstr("head_chunk was not there and is 128"));
    EXPECT_FALSE(check_same_run(now, some_identity()).ok());
}

// Another format of states is a difference that may be allowed by name, and only that one.
TEST(Identity, StatesOfAnotherFormatAreConvertedOnlyIfAllowed) {
    Identity saved = some_identity();
    saved.numerics.push_back({states_fact, "fp32"});
    Identity now = some_identity();
    now.numerics.push_back({states_fact, "int8"});
    EXPECT_EQ(states_of(saved).value(), offload::StateFormat::fp32);
    EXPECT_EQ(states_of(now).value(), offload::StateFormat::int8);
    EXPECT_FALSE(states_of(some_identity()).ok());
    const auto refused = check_same_run(saved, now);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().text(), AllOf(HasSubstr("optimizer_states was fp32 and is int8"),
                                              HasSubstr("with optimizer_states=fp32"),
                                              HasSubstr("convert_optimizer_states=true")));
    EXPECT_TRUE(check_same_run(saved, now, {.states = true}).ok());
    now.numerics[0].value = "2.6.0";
    const auto other = check_same_run(saved, now, {.states = true});
    ASSERT_FALSE(other.ok());
    EXPECT_THAT(other.error().text(), Not(HasSubstr("convert_optimizer_states")));
}

// What computes may be other if that is allowed, and nothing else.
TEST(Identity, OtherArithmeticIsADifferenceUnlessAllowed) {
    Identity saved = some_identity();
    saved.numerics.push_back({"cpu", "GenuineIntel-6-143"});
    saved.numerics.push_back({"matmul", "bf16 onednn amx_bf16"});
    Identity now = some_identity();
    now.numerics.push_back({"cpu", "AuthenticAMD-25-17"});
    now.numerics.push_back({"matmul", "bf16 onednn avx512_bf16"});
    const auto refused = check_same_run(saved, now);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().text(),
                AllOf(HasSubstr("cpu was GenuineIntel-6-143 and is AuthenticAMD-25-17"),
                      HasSubstr("allow_other_numerics=true")));
    EXPECT_TRUE(check_same_run(saved, now, {.arithmetic = true}).ok());
    EXPECT_EQ(arithmetic_changes(saved, now).size(), 2u);
    now.numerics[1].value = "7";
    const auto other = check_same_run(saved, now, {.arithmetic = true});
    ASSERT_FALSE(other.ok());
    EXPECT_THAT(other.error().text(),
                AllOf(HasSubstr("seed was 42 and is 7"), Not(HasSubstr("cpu was")),
                      Not(HasSubstr("allow_other_numerics"))));
}

// A remedy is offered where it helps, and names nothing that is allowed already.
TEST(Identity, ARefusalOffersWhatHelps) {
    Identity saved = some_identity();
    saved.numerics.push_back({"kernels", "fused"});
    saved.numerics.push_back({states_fact, "fp32"});
    saved.job.push_back({"dtype", "bf16"});
    Identity now = saved;
    now.numerics[2].value = "reference";
    now.numerics[3].value = "int8";
    const auto text = [&](AllowedChanges allowed) {
        const offload::Status same = check_same_run(saved, now, allowed);
        return same ? std::string() : same.error().text();
    };
    EXPECT_THAT(text({}), AllOf(HasSubstr("with kernels=fused optimizer_states=fp32"),
                                HasSubstr("convert_optimizer_states=true"),
                                HasSubstr(" and allow_other_numerics=true")));
    EXPECT_THAT(text({.states = true}),
                AllOf(HasSubstr("with kernels=fused,"), HasSubstr("go on with allow_other"),
                      Not(HasSubstr("convert_optimizer_states"))));
    EXPECT_THAT(text({.arithmetic = true}),
                AllOf(HasSubstr("with optimizer_states=fp32,"), HasSubstr("go on with convert_"),
                      Not(HasSubstr("kernels")), Not(HasSubstr("allow_other"))));
    EXPECT_EQ(text({.states = true, .arithmetic = true}), "");
    now.job.back().value = "fp32";  // no permission makes it the same model
    EXPECT_THAT(text({}), AllOf(HasSubstr("dtype=bf16"), Not(HasSubstr("allow_other")),
                                Not(HasSubstr("convert_optimizer_states"))));
}

// Runs of before the processor was noted are not refused for it.
TEST(Identity, AProcessorThatWasNotNotedIsNoDifference) {
    Identity now = some_identity();
    now.numerics.push_back({"cpu", "AuthenticAMD-25-17"});
    for (const bool is_empty : {false, true}) {
        Identity saved = some_identity();
        if (is_empty) saved.numerics.push_back({"cpu", ""});
        EXPECT_TRUE(check_same_run(saved, now).ok());
        EXPECT_THAT(arithmetic_changes(saved, now), ElementsAre());
        EXPECT_THAT(unsaid_arithmetic(saved, now), ElementsAre("cpu (is AuthenticAMD-25-17)"));
    }
    EXPECT_THAT(unsaid_arithmetic(now, now), ElementsAre());
    EXPECT_FALSE(check_same_run(now, some_identity()).ok());
}

// A commit says with what its steps were computed, and a run where it was moved.
TEST(Identity, AMoveIsSaidOnceAStepWasDone) {
    Identity begun = some_identity();
    begun.numerics.push_back({states_fact, "fp32"});
    Saved saved{.identity = begun, .progress = some_progress()};
    Identity now = begun;
    now.numerics.push_back({"kernels", "reference"});
    now.numerics[2].value = "int8";
    now.part_bytes = 8192;
    const Identity kept = identity_after(7, saved, now);
    EXPECT_EQ(states_of(kept).value(), offload::StateFormat::int8);
    EXPECT_EQ(kept.part_bytes, 8192u);
    EXPECT_THAT(arithmetic_changes(begun, kept), ElementsAre());
    EXPECT_THAT(kept.moves, ElementsAre());
    const Identity moved = identity_after(8, saved, now);
    EXPECT_EQ(moved.numerics, now.numerics);
    EXPECT_THAT(moved.moves, ElementsAre("after step 7: kernels was not there and is reference"));
    const auto read = read_record(record_of(moved, some_progress()));
    ASSERT_TRUE(read.ok()) << read.error().text();
    EXPECT_EQ(read->identity, moved);
    EXPECT_EQ(identity_after(9, *read, now).moves, moved.moves) << "it went on as it was";
    saved.identity.moves = {"1", "2", "3", "4"};
    EXPECT_THAT(identity_after(8, saved, now).moves,
                ElementsAre("1", "3", "4", HasSubstr("after step 7")));
}

TEST(Identity, RecordsOfOthersAreRefused) {
    const offload::CommitRecord good = record_of(some_identity(), some_progress());
    for (const std::string payload : {"", "no JSON", "{}", "[1]", R"({"job": 3})"}) {
        offload::CommitRecord record = good;
        record.payload = payload;
        const auto saved = read_record(record);
        ASSERT_FALSE(saved.ok()) << payload;
        EXPECT_EQ(saved.error().code, offload::ErrorCode::bad_data);
        EXPECT_THAT(saved.error().text(), HasSubstr("step 7"));
    }
    offload::CommitRecord miscounted = good;
    miscounted.updates = 6;
    EXPECT_FALSE(read_record(miscounted).ok());
    for (const double scale : {0.0, -1.0, std::nan("")}) {
        offload::CommitRecord unscalable = good;
        unscalable.gradient_scale = scale;
        EXPECT_FALSE(read_record(unscalable).ok()) << scale;
    }
}

// The longest that a run can say must fit into a commit.
TEST(Identity, TheLongestRecordFits) {
    Identity identity = some_identity();
    identity.numerics.assign({{"matmul", std::string(200, 'm')},
                              {"torch", std::string(100, 't')},
                              {"compute_threads", "512"},
                              {"emulate", plain_text(std::string(4096, '\xff'))}});
    identity.moves.assign(moves_max, std::string(move_bytes_max, 'm'));
    identity.recipe.assign({{"the settings of fp16", std::string(700, '1')}});
    const offload::CommitRecord record = record_of(identity, some_progress());
    EXPECT_LE(record.numerics.size(), offload::numerics_bytes_max);
    EXPECT_LE(record.payload.size(), offload::payload_bytes_max);
}

TEST(Identity, AChosenTextIsCutAndPlain) {
    EXPECT_EQ(plain_text("NVIDIA RTX 4090 (24 GB)"), "NVIDIA RTX 4090 (24 GB)");
    EXPECT_EQ(plain_text("a\"b\\c\nd\xC3\xA9\x7F"), "a?b?c?d???");
    EXPECT_EQ(plain_text(std::string(4096, 'x')), std::string(chosen_text_bytes_max, 'x'));
    EXPECT_EQ(plain_text(""), "");
}

// Bytes that no JSON can say come back as others, and end nothing.
TEST(Identity, ATextThatIsNoUtf8IsStored) {
    Identity identity = some_identity();
    identity.numerics[0].value = identity.job[0].value = "a\xFFz";
    const auto saved = read_record(record_of(identity, some_progress()));
    ASSERT_TRUE(saved.ok()) << saved.error().text();
    EXPECT_EQ(saved->identity.numerics[0].value, "a\uFFFDz");
}

}  // namespace
}  // namespace headrace::engine
