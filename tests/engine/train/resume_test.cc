// Goal: a run that was stopped goes on bit for bit, under any placement, window, passes, part size
// and order of paths; what would not be the same run is refused, and nothing that was committed is
// lost to a start that did not ask for it.
// Method: whole runs of train() on a tiny model, stopped after a number of steps and resumed; the
// hashes of weights, states and history are compared with those of a run that was never stopped.
#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <fstream>

#include "engine/train/train.h"
#include "tests/engine/train/train_run.h"

namespace headrace::engine::tests {
namespace {

using nlohmann::json;
using offload::ErrorCode;
using offload::Tier;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t never = std::numeric_limits<int64_t>::max();

class Resume : public TrainRun {
  protected:
    void SetUp() override {
        TrainRun::SetUp();
        for (const char* drive : {"drive1", "drive2"}) {
            std::filesystem::create_directory(folder_.path(drive));
        }
        config_.offload.nvme_paths = {folder_.path("drive1"), folder_.path("drive2")};
        config_.gradient_accumulation_steps = 2;
        config_.num_train_epochs = 2;  // 10 samples: 10 steps
        config_.eval_steps = 4;
        config_.offload.advanced.part_bytes = 16 * offload::kib;
    }

    // Runs to the end, and says what it ended with.
    json finish() {
        stop_after_ = never;
        const Told told = run(model_);
        EXPECT_TRUE(told.status.ok()) << told.status.error().text();
        return last_metrics();
    }

    Told stop_after(int64_t step_count) {
        stop_after_ = step_count;
        Told told = run(model_);
        EXPECT_FALSE(told.status.ok());
        if (!told.status.ok()) {
            EXPECT_THAT(told.status.error().text(), HasSubstr("stopped by signal 2 after step"));
        }
        EXPECT_THAT(told.notes, Contains(HasSubstr("resume_from_checkpoint=true")));
        return told;
    }

    static void expect_same(const json& found, const json& expected, const std::string& what) {
        for (const char* key : {"weights_sha256", "states_sha256", "history_sha256"}) {
            EXPECT_EQ(found[key], expected[key]) << key << ", " << what;
        }
    }

    // The step and evaluation lines of metrics.jsonl, without what depends on time.
    std::vector<std::string> curve() const {
        std::istringstream lines(folder_.read("out/metrics.jsonl"));
        std::vector<std::string> curve;
        for (std::string line; std::getline(lines, line);) {
            const json object = json::parse(line);
            if (!object.contains("step")) continue;
            curve.push_back(
                object.contains("eval_loss")
                    ? fmt::format("eval {} {}", object["step"].dump(), object["eval_loss"].dump())
                    : fmt::format("{} {} {} {}", object["step"].dump(), object["loss"].dump(),
                                  object["grad_norm"].dump(), object["learning_rate"].dump()));
        }
        return curve;
    }

    FlatModel model_ = tiny_model(tiny_config(true), offload::Dtype::bf16);
};

// What may change between two starts of one run, and what it is called.
struct Change {
    std::string name;
    std::function<void(RunConfig&)> apply;
};

std::vector<Change> changes() {
    const auto on = [](Tier parameters, Tier optimizer) {
        return [=](RunConfig& config) {
            config.offload.parameters = TierShares::all_on(parameters);
            config.offload.optimizer = TierShares::all_on(optimizer);
        };
    };
    return {
        {"nothing", [](RunConfig&) {}},
        {"everything in memory", on(Tier::gpu, Tier::ram)},
        {"weights in ram, states on the gpu", on(Tier::ram, Tier::gpu)},
        {"memory as a cache, every step committed",
         [=](RunConfig& config) {
             on(Tier::ram, Tier::ram)(config);
             config.offload.commit = CommitMode::every_step;
         }},
        {"shares",
         [](RunConfig& config) {
             config.offload.parameters = TierShares{.share_of_tier = {0, 0.5, 0.5}};
             config.offload.optimizer = TierShares{.share_of_tier = {0.2, 0.3, 0.5}};
         }},
        {"one layer in flight, one micro-batch per pass",
         [](RunConfig& config) {
             config.offload.advanced.layers_in_flight = 1;
             config.offload.advanced.micro_batches_per_pass = 1;
             config.offload.advanced.stash_tier = TierShares::all_on(Tier::nvme);
             config.offload.advanced.accumulator_tier = Tier::nvme;
             config.offload.activations = TierShares::all_on(Tier::nvme);
         }},
        {"smaller parts",
         [](RunConfig& config) { config.offload.advanced.part_bytes = 4 * offload::kib; }},
        {"one part per layer, in memory",
         [=](RunConfig& config) {
             on(Tier::gpu, Tier::ram)(config);
             config.offload.advanced.part_bytes = offload::mib;
         }},
        {"paths in another order, threads",
         [](RunConfig& config) {
             std::swap(config.offload.nvme_paths[0], config.offload.nvme_paths[1]);
             config.offload.advanced.io_engine = IoEngine::threads;
         }},
    };
}

// CKPT-1: stopped at any step, resumed under anything, the run ends as if it had not been stopped,
// and its curve has every step once.
TEST_F(Resume, ckpt_1_ARunGoesOnBitForBitUnderAnyPlacement) {
    const json expected = finish();
    const std::vector<std::string> expected_curve = curve();
    EXPECT_EQ(expected_curve.size(), 10u + 4);
    const RunConfig begun = config_;
    int64_t stop = 1;
    for (const Change& change : changes()) {
        config_ = begun;
        stop_after(1 + stop % 7);
        ++stop;
        config_.resume_from_checkpoint = true;
        change.apply(config_);
        expect_same(finish(), expected, change.name);
        EXPECT_EQ(curve(), expected_curve) << change.name;
        for (const std::string& path : config_.offload.nvme_paths) {
            EXPECT_TRUE(std::filesystem::is_empty(path)) << change.name;
        }
    }
}

// CKPT-1, the other way: begun with all states in memory, saved, and resumed on the drives.
TEST_F(Resume, ckpt_1_SavesOfARunInMemoryAreResumedOnNvme) {
    const json expected = finish();
    const RunConfig begun = config_;
    config_.offload.parameters = TierShares::all_on(Tier::gpu);
    config_.offload.optimizer = TierShares{.share_of_tier = {0, 0.5, 0.5}};
    config_.save_steps = 3;
    const Told told = stop_after(4);
    EXPECT_THAT(told.notes, Contains(HasSubstr("saved after step 3 of 10")));
    config_ = begun;
    config_.resume_from_checkpoint = true;
    expect_same(finish(), expected, "resumed on nvme");
}

// Stopped again and again, a step or two further each time.
TEST_F(Resume, ManyStopsAreLikeNone) {
    const json expected = finish();
    const std::vector<std::string> expected_curve = curve();
    int starts = 0;
    for (bool is_finished = false; !is_finished; ++starts) {
        ASSERT_LT(starts, 20);
        config_.resume_from_checkpoint = starts > 0;
        config_.offload.advanced.layers_in_flight = 1 + starts % 2;
        config_.offload.advanced.update_twice = starts % 3 / 2.0;
        stop_after_ = 1;
        is_finished = run(model_).status.ok();
    }
    EXPECT_GT(starts, 3);
    expect_same(last_metrics(), expected, "many stops");
    EXPECT_EQ(curve(), expected_curve);
}

// Where the drives have no room for two copies of everything, a run whose only save is its last
// keeps one: it can be stopped and gone on with, and its bits are the same.
TEST_F(Resume, WithOneCopyOfEverythingAStoppedRunGoesOn) {
    const json expected = finish();
    config_.offload.parameters = TierShares::all_on(Tier::nvme);
    config_.offload.optimizer = TierShares::all_on(Tier::nvme);
    config_.offload.commit = CommitMode::at_saves;
    const auto two_copies = finish()["nvme_bytes"].get<uint64_t>();
    config_.offload.nvme_budget_bytes = two_copies - 1;
    const Told told = stop_after(4);
    EXPECT_THAT(told.notes, Contains(HasSubstr("room for one copy of it all")));
    config_.resume_from_checkpoint = true;
    stop_after(2);
    EXPECT_FALSE(std::filesystem::is_empty(folder_.path("drive1")));
    // Also where there would be room for two: what is there goes on as it is.
    config_.offload.nvme_budget_bytes.reset();
    const json found = finish();
    expect_same(found, expected, "one copy");
    EXPECT_LT(found["nvme_bytes"].get<uint64_t>(), two_copies);
    for (const std::string& path : config_.offload.nvme_paths) {
        EXPECT_TRUE(std::filesystem::is_empty(path));
    }
}

// One copy becomes two for a start that wants to save more often, and the run is the same.
TEST_F(Resume, OneCopyBecomesTwoWhereARunAsksForIt) {
    const json expected = finish();
    config_.offload.parameters = TierShares::all_on(Tier::nvme);
    config_.offload.optimizer = TierShares::all_on(Tier::nvme);
    const auto two_copies = finish()["nvme_bytes"].get<uint64_t>();
    for (const CommitMode commit : {CommitMode::every_step, CommitMode::at_saves}) {
        config_.resume_from_checkpoint = false;
        config_.save_steps.reset();
        config_.offload.commit = CommitMode::at_saves;
        config_.offload.nvme_budget_bytes = two_copies - 1;
        stop_after(4);
        config_.offload.nvme_budget_bytes.reset();
        config_.resume_from_checkpoint = true;
        config_.offload.commit = commit;
        config_.save_steps = 2;
        const Told told = stop_after(3);
        EXPECT_THAT(told.notes, Contains(HasSubstr("keeping two copies of everything")));
        expect_same(finish(), expected, std::string(name_of(commit)));
    }
}

// What does not fit with two copies is told that one would do.
TEST_F(Resume, TheRefusalNamesTheModeThatKeepsOneCopy) {
    config_.offload.parameters = TierShares::all_on(Tier::nvme);
    config_.offload.optimizer = TierShares::all_on(Tier::nvme);
    const auto two_copies = finish()["nvme_bytes"].get<uint64_t>();
    config_.offload.nvme_budget_bytes = two_copies - 1;
    config_.save_steps = 2;
    for (const CommitMode commit : {CommitMode::every_step, CommitMode::at_saves}) {
        config_.offload.commit = commit;
        const Told refused = run(model_);
        ASSERT_FALSE(refused.status.ok());
        EXPECT_EQ(refused.status.error().code, ErrorCode::does_not_fit);
        EXPECT_THAT(refused.status.error().text(),
                    HasSubstr("or with commit=at_saves and without save_steps"));
    }
    config_.save_steps.reset();
    config_.offload.commit = CommitMode::at_saves;
    finish();
}

// CKPT-8: Adam's step and the rates go on; a skipped step stays skipped and counted.
TEST_F(Resume, ckpt_8_ASkippedStepIsCountedOnceAcrossAResume) {
    std::ofstream(config_.train_data, std::ios::app)
        << R"({"input_ids": [1, 2, 258], "labels": [1, -100, 258]})"
        << "\n";
    const uint16_t infinity = 0x7F80;
    std::memcpy(model_.weights.front().data() + size_t{258} * 64 * sizeof(infinity), &infinity,
                sizeof(infinity));
    config_.shuffle = false;
    const json expected = finish();
    ASSERT_GT(expected["skipped_step_count"], 0);
    for (const int64_t stop : {5, 6, 7}) {  // around the skipped step
        config_.resume_from_checkpoint = false;
        stop_after(stop);
        config_.resume_from_checkpoint = true;
        const json found = finish();
        expect_same(found, expected, fmt::format("stopped after {}", stop));
        EXPECT_EQ(found["skipped_step_count"], expected["skipped_step_count"]);
    }
}

// CKPT-9: what the update multiplies by, of every step, however the rate is going when it stops.
TEST_F(Resume, ckpt_9_TheRateOfTheUpdateGoesOn) {
    config_.eval_steps.reset();
    config_.lr_scheduler_type = LrSchedule::cosine;
    config_.warmup_steps = 20;
    config_.max_steps = 100;
    config_.max_length = 16;
    config_.gradient_accumulation_steps = 1;
    config_.offload.advanced.part_bytes = offload::mib;
    const auto rates_of = [](const Told& told) {
        std::vector<double> rates;
        for (const StepRecord& step : told.steps) rates.push_back(step.learning_rate);
        return rates;
    };
    stop_after_ = never;
    const std::vector<double> expected = rates_of(run(model_));
    ASSERT_EQ(expected.size(), 100u);
    EXPECT_EQ(expected[0], 0);
    EXPECT_EQ(expected[20], config_.learning_rate);
    EXPECT_LT(expected[99], 0.001 * config_.learning_rate);
    std::vector<double> rates;
    for (const int64_t stop : {10, 20, 50, 100}) {
        stop_after_ = stop - std::ssize(rates);
        config_.resume_from_checkpoint = !rates.empty();
        const std::vector<double> more = rates_of(run(model_));
        rates.insert(rates.end(), more.begin(), more.end());
    }
    EXPECT_EQ(rates, expected);
}

TEST_F(Resume, AnotherRunIsRefusedByName) {
    stop_after(3);
    config_.resume_from_checkpoint = true;
    const RunConfig saved = config_;
    const auto refusal = [&](const Change& change) {
        config_ = saved;
        change.apply(config_);
        stop_after_ = never;
        const Told told = run(model_);
        EXPECT_FALSE(told.status.ok()) << change.name;
        EXPECT_EQ(told.status.ok() ? ErrorCode::failed : told.status.error().code,
                  ErrorCode::bad_data);
        return told.status.ok() ? "" : told.status.error().text();
    };
    EXPECT_THAT(refusal({"seed", [](RunConfig& c) { c.seed = 7; }}),
                HasSubstr("seed was 42 and is 7"));
    EXPECT_THAT(refusal({"batches", [](RunConfig& c) { c.gradient_accumulation_steps = 5; }}),
                HasSubstr("gradient_accumulation_steps was 2 and is 5"));
    EXPECT_THAT(refusal({"gradients",
                         [](RunConfig& c) {
                             c.offload.gradients = offload::Dtype::fp32;
                             c.shuffle = false;
                         }}),
                AllOf(HasSubstr("gradients was bf16 and is fp32"),
                      HasSubstr("shuffle was true and is false")));
    EXPECT_THAT(refusal({"data", [&](RunConfig& c) { c.train_data = data("o.jsonl", 10, 3); }}),
                HasSubstr("train_data was "));
    EXPECT_THAT(refusal({"a drive less", [](RunConfig& c) { c.offload.nvme_paths.pop_back(); }}),
                HasSubstr("drive2"));
    EXPECT_THAT(refusal({"no room either",
                         [](RunConfig& c) {
                             c.seed = 7;
                             c.offload.gpu_budget_bytes = offload::kib;
                         }}),
                HasSubstr("seed was 42 and is 7"));
    const FlatModel before = model_;
    model_ = tiny_model(tiny_config(true), offload::Dtype::bf16, 2);
    EXPECT_THAT(refusal({"model", [](RunConfig&) {}}), HasSubstr("model was "));
    model_ = before;

    // Another recipe is said, and obeyed; and after all the refusals the run is still whole.
    config_ = saved;
    config_.learning_rate = 2e-2;
    const Told told = run(model_);
    EXPECT_TRUE(told.status.ok()) << told.status.error().text();
    EXPECT_THAT(told.warnings, Contains(HasSubstr("learning_rate was 0.01 and is 0.02")));
}

// Where a run was begun on another kind of processor, or with another torch, nobody can give it the
// bits it would have had: if that is allowed, it goes on with weights and states as they were.
TEST_F(Resume, OtherArithmeticGoesOnOnlyIfAllowed) {
    const RunConfig begun = config_;
    const auto resume_after_stop = [&](int64_t step_count) {
        config_ = begun;
        const Told told = stop_after(step_count);
        stop_after_ = never;
        config_.resume_from_checkpoint = true;
        return std::ssize(told.steps);
    };
    config_.max_steps = resume_after_stop(4);  // exports what is there
    const json kept = finish();
    config_.max_steps = resume_after_stop(4);
    config_.offload.advanced.kernels = Kernels::reference;
    config_.allow_other_numerics = true;
    const json exported = finish();
    EXPECT_EQ(exported["weights_sha256"], kept["weights_sha256"]);
    EXPECT_EQ(exported["numerics"], kept["numerics"]) << "nothing was computed otherwise";
    EXPECT_FALSE(exported.contains("moves"));

    resume_after_stop(4);
    config_.offload.advanced.kernels = Kernels::reference;
    const Told refused = run(model_);
    ASSERT_FALSE(refused.status.ok());
    EXPECT_EQ(refused.status.error().code, ErrorCode::bad_data);
    EXPECT_THAT(refused.status.error().text(),
                AllOf(HasSubstr("kernels was fused and is reference"),
                      HasSubstr("with kernels=fused"), HasSubstr("allow_other_numerics=true")));
    config_.allow_other_numerics = true;
    config_.seed = 7;
    EXPECT_THAT(run(model_).status.error().text(), HasSubstr("seed was 42 and is 7"));
    config_.seed = begun.seed;
    EXPECT_THAT(stop_after(2).warnings, Contains(HasSubstr("kernels was fused and is reference")));
    config_.allow_other_numerics = false;
    stop_after_ = never;
    const Told told = run(model_);
    ASSERT_TRUE(told.status.ok()) << told.status.error().text();
    EXPECT_THAT(told.warnings, Not(Contains(HasSubstr("arithmetic"))));
    EXPECT_THAT(told.notes, Contains(HasSubstr("the run was moved after step ")));
    EXPECT_THAT(last_metrics()["moves"].get<std::string>(),
                HasSubstr("kernels was fused and is reference"));
    EXPECT_EQ(curve().size(), 10u + 4) << "every step once";
}

// A start that may compute otherwise and is stopped before it did leaves the run as it was, also
// where it cut its parts anew: the machine that began it goes on bit for bit.
TEST_F(Resume, OtherArithmeticThatComputedNothingLeavesNoTrace) {
    const json whole = finish();
    config_.overwrite_output_dir = true;
    stop_after(4);
    config_.overwrite_output_dir = false;
    config_.resume_from_checkpoint = true;
    config_.offload.advanced.part_bytes = 4 * offload::kib;
    config_.offload.advanced.kernels = Kernels::reference;
    config_.allow_other_numerics = true;
    stop_after_ = 0;
    const Told stopped = run(model_);
    ASSERT_FALSE(stopped.status.ok());
    EXPECT_THAT(stopped.status.error().text(), HasSubstr("before the first step"));
    EXPECT_THAT(stopped.notes, Contains(HasSubstr("repacking")));
    config_.allow_other_numerics = false;
    config_.offload.advanced.kernels = Kernels::fused;
    const json resumed = finish();
    expect_same(resumed, whole, "moved, and back");
    EXPECT_FALSE(resumed.contains("moves"));
}

// Another format of states is another run, unless the conversion is asked for: then weights are as
// they were, bit for bit, the run goes on, and may be converted again.
TEST_F(Resume, StatesAreConvertedOnlyIfAsked) {
    config_.eval_steps.reset();
    config_.lr_scheduler_type = LrSchedule::constant;
    const RunConfig begun = config_;
    const auto export_after_stop = [&](offload::StateFormat states) {
        config_ = begun;
        const Told told = stop_after(4);
        config_.resume_from_checkpoint = true;
        config_.max_steps = std::ssize(told.steps);  // exports what is there
        config_.offload.optimizer_states = states;
        config_.convert_optimizer_states = states != offload::StateFormat::fp32;
        return finish();
    };
    const json kept = export_after_stop(offload::StateFormat::fp32);
    for (const offload::StateFormat states :
         {offload::StateFormat::bf16, offload::StateFormat::int8}) {
        const json converted = export_after_stop(states);
        EXPECT_EQ(converted["optimizer_states"], name_of(states));
        EXPECT_EQ(converted["weights_sha256"], kept["weights_sha256"]);
        EXPECT_EQ(converted["history_sha256"], kept["history_sha256"]);
        EXPECT_NE(converted["states_sha256"], kept["states_sha256"]);
    }

    config_ = begun;
    stop_after(1);
    config_.resume_from_checkpoint = true;
    config_.offload.optimizer_states = offload::StateFormat::bf16;
    stop_after_ = never;
    const Told refused = run(model_);
    ASSERT_FALSE(refused.status.ok());
    EXPECT_EQ(refused.status.error().code, ErrorCode::bad_data);
    EXPECT_THAT(refused.status.error().text(),
                AllOf(HasSubstr("optimizer_states was fp32 and is bf16"),
                      HasSubstr("convert_optimizer_states=true")));
    config_.convert_optimizer_states = true;
    EXPECT_THAT(stop_after(1).notes, Contains(HasSubstr("from fp32 to bf16")));
    EXPECT_THAT(stop_after(1).notes, Not(Contains(HasSubstr("converting"))));
    config_.offload.optimizer_states = offload::StateFormat::fp32;
    EXPECT_THAT(stop_after(1).notes, Contains(HasSubstr("from bf16 to fp32")));
    config_.offload.optimizer_states = offload::StateFormat::int8;
    stop_after_ = never;
    const Told told = run(model_);
    ASSERT_TRUE(told.status.ok()) << told.status.error().text();
    EXPECT_THAT(told.notes, Contains(HasSubstr("from fp32 to int8")));
    EXPECT_EQ(last_metrics()["optimizer_states"], "int8");
    const std::vector<std::string> converted_curve = curve();
    EXPECT_EQ(converted_curve.size(), 10u + 2);
}

// A run in bf16 or int8 goes on bit for bit, as any; and a conversion that is cut at any write
// loses nothing: the run is there as it was, or converted.
TEST_F(Resume, ckpt_1_LossyStatesGoOnBitForBit) {
    for (const offload::StateFormat states :
         {offload::StateFormat::bf16, offload::StateFormat::int8}) {
        config_.offload.optimizer_states = states;
        config_.resume_from_checkpoint = false;
        const json expected = finish();
        stop_after(4);
        config_.resume_from_checkpoint = true;
        config_.offload.advanced.part_bytes = 4 * offload::kib;
        expect_same(finish(), expected, std::string(name_of(states)));
        config_.offload.advanced.part_bytes = 16 * offload::kib;
    }
}

// CKPT-8 in fp16: the scale, its hysteresis and the steps it waited go on where they were.
TEST_F(Resume, ckpt_8_TheLossScaleGoesOn) {
    model_ = tiny_model(tiny_config(true), offload::Dtype::fp16);
    config_.dtype = config_.offload.gradients = offload::Dtype::fp16;
    config_.loss_scale = {.initial_scale_power = 24, .window = 2, .hysteresis = 2};
    config_.num_train_epochs = 4;
    const auto scales_of = [](const Told& told) {
        std::vector<double> scales;
        for (const StepRecord& step : told.steps) scales.push_back(*step.loss_scale);
        return scales;
    };
    stop_after_ = never;
    const Told whole = run(model_);
    ASSERT_TRUE(whole.status.ok()) << whole.status.error().text();
    const json expected = last_metrics();
    EXPECT_GT(expected["skipped_step_count"], 2);
    for (const int64_t stop : {1, 2, 5, 9}) {
        config_.resume_from_checkpoint = false;
        std::vector<double> scales = scales_of(stop_after(stop));
        config_.resume_from_checkpoint = true;
        stop_after_ = never;
        for (const double scale : scales_of(run(model_))) scales.push_back(scale);
        expect_same(last_metrics(), expected, fmt::format("stopped after {}", stop));
        EXPECT_EQ(scales, scales_of(whole));
    }
}

TEST_F(Resume, AConversionThatIsCutLosesNothing) {
    config_.eval_steps.reset();
    const json expected = finish();
    const RunConfig begun = config_;
    std::atomic<int64_t> writes_left = 0;
    std::atomic<bool> is_armed = false;
    const auto is_over = [&] { return is_armed && writes_left < 0; };
    drives_.operations.before_request =
        [&](const nvme::Request& request) -> std::optional<nvme::Fault> {
        if (is_armed && request.direction == offload::Direction::write) --writes_left;
        if (!is_over()) return {};
        return nvme::Fault{.executed_bytes = 0, .result = -EIO};
    };
    drives_.operations.sync_data = [&](int descriptor) {
        return is_over() ? -EIO : nvme::sync_data({}, descriptor);
    };
    int as_it_was = 0;
    int converted = 0;
    for (int64_t cut = 0; converted == 0; cut = 2 * cut + 3) {
        ASSERT_LT(cut, 1'000'000);
        config_ = begun;
        stop_after(4);
        config_.resume_from_checkpoint = true;
        config_.offload.optimizer_states = offload::StateFormat::int8;
        config_.convert_optimizer_states = true;
        stop_after_ = never;
        writes_left = cut;
        is_armed = true;
        const Told told = run(model_);
        is_armed = false;
        if (told.status.ok()) break;
        config_.offload.optimizer_states = offload::StateFormat::fp32;
        config_.convert_optimizer_states = false;
        const Told again = run(model_);
        if (again.status.ok()) {
            expect_same(last_metrics(), expected, fmt::format("cut at write {}", cut));
            ++as_it_was;
            continue;
        }
        EXPECT_THAT(again.status.error().text(), HasSubstr("optimizer_states was int8"));
        config_.offload.optimizer_states = offload::StateFormat::int8;
        const Told rest = run(model_);
        EXPECT_TRUE(rest.status.ok()) << rest.status.error().text();
        ++converted;
    }
    EXPECT_GT(as_it_was, 2);
    EXPECT_EQ(converted, 1);
}

// A run that ends by itself at its second step has committed its first: that is kept.
TEST_F(Resume, ARunThatDivergesEarlyKeepsWhatItCommitted) {
    model_ = tiny_model(tiny_config(true), offload::Dtype::fp16);
    config_.dtype = config_.offload.gradients = offload::Dtype::fp16;
    config_.eval_steps.reset();
    config_.loss_scale = {.initial_scale_power = 26, .hysteresis = 1, .min_scale = 0x1p25};
    const Told told = run(model_);
    ASSERT_FALSE(told.status.ok());
    EXPECT_EQ(told.status.error().code, ErrorCode::diverged);
    EXPECT_EQ(told.steps.size(), 2u);
    EXPECT_THAT(told.notes, Contains(HasSubstr("resume_from_checkpoint=true")));
    config_.resume_from_checkpoint = true;
    config_.max_steps = 1;  // exports what is there
    EXPECT_EQ(finish()["skipped_step_count"], 1);
}

// One copy of everything is written over from the moment that its commit is withdrawn, and not
// before: where the withdrawal fails, the run is still there.
TEST_F(Resume, AWithdrawalThatFailsLosesNothing) {
    config_.eval_steps.reset();
    const json expected = finish();
    config_.offload.commit = CommitMode::at_saves;
    config_.offload.nvme_budget_bytes = finish()["nvme_bytes"].get<uint64_t>() - 1;
    EXPECT_THAT(stop_after(4).notes, Contains(HasSubstr("room for one copy of it all")));
    config_.resume_from_checkpoint = true;
    stop_after_ = never;

    std::atomic<int64_t> writes_left = never;
    drives_.operations.before_request =
        [&](const nvme::Request& request) -> std::optional<nvme::Fault> {
        const bool is_write = request.direction == offload::Direction::write;
        if (!is_write || writes_left-- > 0) return {};
        return nvme::Fault{.executed_bytes = 0, .result = -EIO};
    };
    bool has_begun = false;
    for (int64_t writes = 0; !has_begun; ++writes) {
        ASSERT_LT(writes, 100);
        writes_left = writes;
        const Told told = run(model_);
        writes_left = never;
        ASSERT_FALSE(told.status.ok());
        EXPECT_THAT(told.status.error().text(), HasSubstr("EIO"));
        // The first write of the steps is the withdrawal's.
        has_begun = std::ranges::any_of(told.notes, [](const std::string& note) {
            return note.starts_with("resuming after step");
        });
        if (!has_begun) continue;
        EXPECT_THAT(told.notes, Contains(HasSubstr("resume_from_checkpoint=true")));
    }
    expect_same(finish(), expected, "gone on with");
}

TEST_F(Resume, AnUnfinishedRunIsNotThrownAwayUnasked) {
    stop_after(3);
    stop_after_ = never;
    const Told refused = run(model_);
    ASSERT_FALSE(refused.status.ok());
    EXPECT_EQ(refused.status.error().code, ErrorCode::usage);
    EXPECT_THAT(refused.status.error().text(),
                AllOf(HasSubstr("unfinished run"), HasSubstr("resume_from_checkpoint=true"),
                      HasSubstr("overwrite_output_dir=true")));
    config_.overwrite_output_dir = true;
    const json anew = finish();
    config_.overwrite_output_dir = false;
    expect_same(finish(), anew, "begun anew");
    config_.resume_from_checkpoint = true;
    const Told nothing = run(model_);
    ASSERT_FALSE(nothing.status.ok());
    EXPECT_THAT(nothing.status.error().text(), HasSubstr("there is no run to resume"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("drive1")));
}

}  // namespace
}  // namespace headrace::engine::tests
