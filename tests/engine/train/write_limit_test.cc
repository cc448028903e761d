// Goal: a run never writes more to its drives than nvme_write_limit, a save that nobody has seen
// yet included, and what it stops with is gone on with bit for bit; a limit that holds no step is
// refused before anything is taken; one that holds the run does not stop it.
// Method: whole runs of train() on a tiny model; every byte of data that is handed to a drive is
// counted, below the store, for limits from nothing to what the run writes without one.
#include <gmock/gmock.h>

#include <atomic>

#include "engine/train/train.h"
#include "tests/engine/train/train_run.h"

namespace headrace::engine::tests {
namespace {

using nlohmann::json;
using offload::ErrorCode;
using offload::Tier;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int limit_count = 9;

struct Case {
    std::string name;
    std::function<void(RunConfig&)> apply;
    // Every step writes as much as the largest can: a run stops not one step before it must.
    bool is_exact = true;
};

std::vector<Case> cases() {
    const auto in_memory = [](RunConfig& config) {
        config.offload.parameters = TierShares::all_on(Tier::gpu);
        config.offload.optimizer = TierShares::all_on(Tier::ram);
        config.offload.commit = CommitMode::at_saves;
    };
    return {
        {"all on nvme", [](RunConfig&) {}},
        {"all on nvme, one op at a time",
         [](RunConfig& config) { config.offload.advanced.overlap = false; }},
        {"all on nvme, updated twice",
         [](RunConfig& config) { config.offload.advanced.update_twice = 1; }},
        {"in memory, saved at the end", in_memory},
        {"in memory, saved every three steps",
         [=](RunConfig& config) {
             in_memory(config);
             config.save_steps = 3;
         }},
        {"shares, saved every four steps",
         [](RunConfig& config) {
             config.offload.parameters = TierShares{.share_of_tier = {0, 0.5, 0.5}};
             config.offload.optimizer = TierShares{.share_of_tier = {0, 0.5, 0.5}};
             config.offload.commit = CommitMode::at_saves;
             config.save_steps = 4;
         }},
        {"gradients and activations on nvme",
         [](RunConfig& config) {
             config.offload.advanced.stash_tier = TierShares::all_on(Tier::nvme);
             config.offload.activations = TierShares::all_on(Tier::nvme);
             config.offload.advanced.micro_batches_per_pass = 1;
             config.offload.advanced.accumulator_tier = Tier::nvme;
         },
         false},
    };
}

class WriteLimit : public TrainRun {
  protected:
    void SetUp() override {
        TrainRun::SetUp();
        config_.gradient_accumulation_steps = 2;
        config_.num_train_epochs = 2;  // 10 samples: 10 steps
        config_.eval_steps = 5;
        config_.offload.advanced.part_bytes = 16 * offload::kib;
        drives_.operations.before_request =
            [this](const nvme::Request& request) -> std::optional<nvme::Fault> {
            const bool is_write = request.direction == offload::Direction::write;
            if (is_write && is_data(request.descriptor)) written_ += request.memory.size();
            return {};
        };
    }

    // And not the store's map, some KiB of which are written with every commit.
    static bool is_data(int descriptor) {
        std::error_code failure;
        const auto path =
            std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), failure);
        CHECK(!failure);
        CHECK(path.filename() == "data" || path.filename() == "map");
        return path.filename() == "data";
    }

    Told run_within(std::optional<uint64_t> limit_bytes) {
        config_.offload.nvme_write_limit_bytes = limit_bytes;
        written_ = 0;
        return run(model_);
    }

    // What the run ends with that goes on where it was stopped.
    json gone_on_with() {
        config_.resume_from_checkpoint = true;
        const Told told = run_within({});
        EXPECT_TRUE(told.status.ok()) << told.status.error().text();
        config_.resume_from_checkpoint = false;
        return last_metrics();
    }

    const FlatModel model_ = tiny_model(tiny_config(true), offload::Dtype::bf16);
    std::atomic<uint64_t> written_ = 0;  // since the start
};

TEST_F(WriteLimit, IsKeptAndLosesNothing) {
    const RunConfig begun = config_;
    for (const Case& one : cases()) {
        config_ = begun;
        one.apply(config_);
        const Told whole = run_within({});
        ASSERT_TRUE(whole.status.ok()) << one.name << ": " << whole.status.error().text();
        const uint64_t whole_bytes = written_;
        const json expected = last_metrics();
        int refused = 0;
        int stopped = 0;
        for (int i = 0; i < limit_count; ++i) {
            const uint64_t limit_bytes = whole_bytes * static_cast<uint64_t>(i) / limit_count;
            const std::string what =
                fmt::format("{}, {} of {}", one.name, limit_bytes, whole_bytes);
            const Told told = run_within(limit_bytes);
            ASSERT_FALSE(told.status.ok()) << what;
            EXPECT_LE(written_, limit_bytes) << what;
            EXPECT_THAT(told.status.error().text(), HasSubstr("nvme_write_limit")) << what;
            if (told.status.error().code == ErrorCode::does_not_fit) {
                EXPECT_EQ(written_, 0u) << what;
                EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive"))) << what;
                ++refused;
                continue;
            }
            EXPECT_GE(told.steps.size(), 1u) << what;
            ++stopped;
            const json found = gone_on_with();
            for (const char* key : {"weights_sha256", "states_sha256", "history_sha256"}) {
                EXPECT_EQ(found[key], expected[key]) << key << ", " << what;
            }
        }
        EXPECT_GE(refused, 1) << one.name;
        // A run whose save is nearly all that it writes is refused, or has room for everything.
        if (one.name != "in memory, saved at the end") {
            EXPECT_GE(stopped, 2) << one.name;
        }
        if (!one.is_exact) continue;
        const Told enough = run_within(whole_bytes);
        EXPECT_TRUE(enough.status.ok()) << one.name << ": " << enough.status.error().text();
    }
}

// What is repacked is written too, before the store of the run is there.
TEST_F(WriteLimit, CountsWhatIsRepacked) {
    ASSERT_TRUE(run_within({}).status.ok());
    const json expected = last_metrics();
    stop_after_ = 4;
    ASSERT_FALSE(run_within({}).status.ok());
    stop_after_ = std::numeric_limits<int64_t>::max();
    config_.resume_from_checkpoint = true;
    config_.offload.advanced.part_bytes = 32 * offload::kib;
    const Told refused = run_within(16 * offload::kib);
    ASSERT_FALSE(refused.status.ok());
    EXPECT_EQ(refused.status.error().code, ErrorCode::does_not_fit);
    EXPECT_EQ(written_, 0u);
    uint64_t limit_bytes = 16 * offload::kib;
    Told told;
    do {  // until there is room for it and for one step
        limit_bytes += limit_bytes / 8;
        told = run_within(limit_bytes);
        ASSERT_FALSE(told.status.ok());
    } while (told.status.error().code == ErrorCode::does_not_fit);
    EXPECT_GE(told.steps.size(), 1u);
    EXPECT_LE(written_, limit_bytes);
    const json found = gone_on_with();
    EXPECT_EQ(found["weights_sha256"], expected["weights_sha256"]);
}

TEST_F(WriteLimit, ARefusalSaysWhatIsNeeded) {
    config_.offload.parameters = TierShares::all_on(Tier::gpu);
    config_.offload.optimizer = TierShares::all_on(Tier::ram);
    config_.offload.commit = CommitMode::at_saves;
    const Told told = run_within(4096);
    ASSERT_FALSE(told.status.ok());
    EXPECT_EQ(told.status.error().code, ErrorCode::does_not_fit);
    EXPECT_THAT(told.status.error().text(),
                AllOf(HasSubstr("a run of one step writes"), HasSubstr("to load"),
                      HasSubstr("to save"), HasSubstr("nvme_write_limit allows 4.00 KiB")));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("out")));
}

// A limit that holds nothing more stops nobody who has no step left to do.
TEST_F(WriteLimit, WhatIsDoneIsExportedUnderAnyLimit) {
    stop_after_ = 4;
    ASSERT_FALSE(run_within({}).status.ok());
    stop_after_ = std::numeric_limits<int64_t>::max();
    config_.resume_from_checkpoint = true;
    const Told refused = run_within(1);
    ASSERT_FALSE(refused.status.ok());
    EXPECT_EQ(refused.status.error().code, ErrorCode::does_not_fit);
    config_.max_steps = 5;  // one was under way when the signal came
    config_.offload.activations = TierShares::all_on(Tier::gpu);
    const Told told = run_within(1);
    EXPECT_TRUE(told.status.ok()) << told.status.error().text();
    EXPECT_EQ(written_, 0u);
}

}  // namespace
}  // namespace headrace::engine::tests
