// Goal: a run file and overrides become exactly the RunConfig that was meant, or one message that
// lists every fault with its place; nothing is created on the way.
// Method: small run files; CFG-3 by removing each required field in turn inside an empty folder.
#include "engine/config/load_config.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace::engine {
namespace {

namespace fs = std::filesystem;
using offload::ErrorCode;
using offload::Tier;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* minimal = "model: models/smollm2\ntrain_data: data/chat.jsonl\n";

std::string refusal(const std::string& yaml, std::vector<std::string> overrides = {}) {
    const auto loaded = parse_config({.yaml = yaml, .overrides = std::move(overrides)});
    if (loaded.ok()) return "accepted";
    EXPECT_EQ(loaded.error().code, ErrorCode::usage);
    return loaded.error().text();
}

TEST(LoadConfigTest, model_and_data_are_enough) {
    const auto loaded = parse_config({.yaml = minimal});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    RunConfig expected;
    expected.model = "models/smollm2";
    expected.train_data = "data/chat.jsonl";
    expected.output_dir = "runs/smollm2";
    EXPECT_EQ(loaded->config, expected);
    EXPECT_EQ(loaded->origins.at("model"), "run.yaml:1");
    EXPECT_FALSE(loaded->origins.contains("seed"));
    EXPECT_TRUE(loaded->notes.empty());
}

TEST(LoadConfigTest, no_run_file_is_needed) {
    const auto loaded = parse_config({.overrides = {"model=org/name", "train_data=d.jsonl"}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->config.output_dir, "runs/name");
    EXPECT_EQ(loaded->origins.at("model"), "command line");
}

TEST(LoadConfigTest, overrides_win_over_the_file_and_know_short_names) {
    const auto loaded =
        parse_config({.yaml = std::string(minimal) +
                              "seed: 1\noffload:\n  ram_budget: 1GiB\n  nvme_paths: [/a]\n",
                      .overrides = {"seed=2", "ram_budget=2GiB", "offload.advanced.part_bytes=1MiB",
                                    "layers_in_flight=all", "parameters={gpu: 25%, nvme: 75%}",
                                    "optimizer=nvme", "seed=3"}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    const OffloadConfig& offload = loaded->config.offload;
    EXPECT_EQ(loaded->config.seed, 3u);
    EXPECT_EQ(offload.ram_budget_bytes, uint64_t{2} << 30);
    EXPECT_EQ(offload.advanced.part_bytes, uint64_t{1} << 20);
    EXPECT_EQ(offload.advanced.layers_in_flight, as_many_as_there_are);
    EXPECT_EQ(offload.parameters->share(Tier::nvme), 0.75);
    EXPECT_EQ(offload.optimizer, TierShares::all_on(Tier::nvme));
    EXPECT_EQ(loaded->origins.at("seed"), "command line");
    EXPECT_EQ(loaded->origins.at("offload.nvme_paths"), "run.yaml:6");
}

TEST(LoadConfigTest, an_override_that_is_no_yaml_is_a_text) {
    const auto loaded = parse_config({.overrides = {"model=*m: x", "train_data=d"}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->config.model, "*m: x");
    EXPECT_THAT(refusal(minimal, {"seed"}), HasSubstr("'seed' must have the form key=value"));
    EXPECT_THAT(refusal(minimal, {"seed="}), HasSubstr("'seed=' must have the form key=value"));
}

TEST(LoadConfigTest, defaults_follow_what_they_depend_on) {
    const auto loaded =
        parse_config({.yaml = std::string(minimal) +
                              "dtype: fp32\nmicro_batch_size: 4\nmodel_path: models/smollm2\n"});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->config.offload.gradients, offload::Dtype::fp32);
    EXPECT_EQ(loaded->config.per_device_eval_batch_size, 4);
    const auto given = parse_config({.yaml = "model: models/x/\ntrain_data: d\ndtype: fp32\n"
                                             "per_device_eval_batch_size: 8\n"
                                             "offload: {gradients: bf16}\n"});
    ASSERT_TRUE(given.ok()) << given.error().text();
    EXPECT_EQ(given->config.offload.gradients, offload::Dtype::bf16);
    EXPECT_EQ(given->config.per_device_eval_batch_size, 8);
    EXPECT_EQ(given->config.output_dir, "runs/x");
}

// DeepSpeed's section of fp16, by its names; what has no effect or cannot be is said.
TEST(LoadConfigTest, the_loss_scale_of_fp16) {
    const auto loaded = parse_config(
        {.yaml = std::string(minimal) +
                 "fp16: {enabled: true, loss_scale: 0, initial_scale_power: 12, hysteresis: 1,\n"
                 "       loss_scale_window: 500, consecutive_hysteresis: true,\n"
                 "       min_loss_scale: 2, auto_cast: false}\n"});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->config.dtype, offload::Dtype::fp16);
    EXPECT_EQ(loaded->config.offload.gradients, offload::Dtype::fp16);
    const LossScaleRule expected{.initial_scale_power = 12,
                                 .window = 500,
                                 .hysteresis = 1,
                                 .has_consecutive_hysteresis = true,
                                 .min_scale = 2};
    EXPECT_EQ(loaded->config.loss_scale, expected);
    EXPECT_TRUE(loaded->notes.empty());
    const auto idle = parse_config({.yaml = std::string(minimal) + "loss_scale: 128\n"});
    ASSERT_TRUE(idle.ok()) << idle.error().text();
    EXPECT_THAT(idle->notes, ElementsAre(HasSubstr("loss_scale has no effect: dtype is bf16")));
    EXPECT_THAT(refusal(std::string(minimal) + "fp16: true\nmin_loss_scale: 1e9\n"),
                HasSubstr("min_loss_scale: must be at most 2 to the initial_scale_power (65536)"));
    EXPECT_THAT(refusal(std::string(minimal) + "offload: {gradients: fp16}\n"),
                HasSubstr("offload.gradients: fp16 needs dtype: fp16"));
    EXPECT_THAT(refusal(std::string(minimal) + "fp16: {enabled: true, auto_cast: true}\n"),
                HasSubstr("fp16.auto_cast: "));
    EXPECT_THAT(refusal(std::string(minimal) + "fp16: {loss_scales: 2}\n"),
                HasSubstr("did you mean 'fp16.loss_scale'"));
}

TEST(LoadConfigTest, one_message_lists_every_fault_with_its_line) {
    const std::string text = refusal(
        "model: m\n"
        "learnign_rate: 1e-4\n"
        "seed: x\n"
        "seed: 3\n"
        "eval_steps: 10\n"
        "offload:\n"
        "  gpu_budgte: 1GiB\n"
        "  parameters: nvme\n"
        "  advanced: 3\n",
        {"max_length=1"});
    EXPECT_THAT(text, AllOf(HasSubstr("9 faults:"),
                            HasSubstr("run.yaml: line 4: key 'seed' is given twice"),
                            HasSubstr("run.yaml:2: learnign_rate: unknown key; did you mean "
                                      "'learning_rate'?"),
                            HasSubstr("run.yaml:3: seed: must be a whole number"),
                            HasSubstr("run.yaml:7: offload.gpu_budgte: unknown key; did you mean "
                                      "'offload.gpu_budget'?"),
                            HasSubstr("run.yaml:9: offload.advanced: must be a section"),
                            HasSubstr("command line: max_length: must be")));
    EXPECT_THAT(text,
                AllOf(HasSubstr("train_data is missing"), HasSubstr("eval_steps: needs eval_data"),
                      HasSubstr("offload.nvme_paths is missing")));
}

TEST(LoadConfigTest, unknown_keys_are_refused_wherever_they_stand) {
    EXPECT_THAT(refusal(std::string(minimal) + "bananas: 3\n"),
                HasSubstr("bananas: unknown key; `headrace train --help` lists the keys"));
    EXPECT_THAT(refusal(std::string(minimal) + "offload: {seed: 3}\n"),
                HasSubstr("offload.seed: unknown key; did you mean 'seed'?"));
    EXPECT_THAT(refusal(std::string(minimal) + "sed: 3\n"), HasSubstr("did you mean 'seed'?"));
    EXPECT_THAT(refusal(minimal, {"ram_budge=1GiB"}), HasSubstr("did you mean 'ram_budget'?"));
    EXPECT_THAT(refusal("just a text"), HasSubstr("must hold keys and values"));
}

// What is meant elsewhere by a section is told, not likened to a key of another meaning.
TEST(LoadConfigTest, sections_of_deepspeed_are_refused_with_what_to_write) {
    const auto refused = [](const std::string& line) {
        const std::string text = refusal(minimal + line + "\n");
        EXPECT_THAT(text, Not(HasSubstr("did you mean"))) << line;
        return text;
    };
    EXPECT_THAT(refused("zero_optimization: {stage: 3}"), HasSubstr("remove it"));
    EXPECT_THAT(refused("aio: {block_size: 1048576}"), HasSubstr("advanced.io_engine"));
    EXPECT_THAT(refused("optimizer: {type: AdamW, params: {lr: 1e-5}}"),
                HasSubstr("optimizer.params: write learning_rate"));
    EXPECT_THAT(refused("optimizer: {type: Lion}"), HasSubstr("always: write AdamW"));
    EXPECT_THAT(refused("eval_strategy: epoch"), HasSubstr("set eval_steps"));
    EXPECT_THAT(refused("optim: paged_adamw_8bit"), HasSubstr("optimizer_states: int8"));
    EXPECT_THAT(refused("optimizer: lion_8bit"), HasSubstr("always: write adamw"));
    EXPECT_EQ(refusal(minimal, {"optimizer={type: AdamW}", "bf16={enabled: True}"}), "accepted");
    EXPECT_THAT(refused("monitor.block_size: 3"), HasSubstr("headrace train --help"));
    for (const char* dotted :
         {"aio.block_size=1", "zero_optimization.stage=3", "scheduler.params.lr=1"}) {
        EXPECT_THAT(refusal(minimal, {dotted}), Not(HasSubstr("did you mean"))) << dotted;
    }
    EXPECT_EQ(refusal(std::string(minimal) + "optimizer: {type: AdamW}\n"), "accepted");
    EXPECT_THAT(refusal(minimal, {"resume_from_checkpoint=out/checkpoint-500"}),
                HasSubstr("no folder is named"));
    EXPECT_THAT(refusal(minimal, {"gpu_budget=24"}), HasSubstr("at least 4.00 KiB"));
}

// Switches in Python's spelling, and what a template leaves open.
TEST(LoadConfigTest, what_says_nothing_is_taken_as_not_given) {
    for (const char* line :
         {"bf16: True", "bf16: auto", "fp16:", "fp16: False", "do_train: True", "do_train: yes",
          "load_in_4bit: False", "adapter:", "adapter: ''", "lora_r: 0", "lora_r:",
          "resume_from_checkpoint:", "gradient_checkpointing: True", "shuffle:", "deepspeed: ~"}) {
        const auto loaded = parse_config({.yaml = std::string(minimal) + line + "\n"});
        ASSERT_TRUE(loaded.ok()) << line << loaded.error().text();
        EXPECT_EQ(loaded->config.dtype, offload::Dtype::bf16) << line;
        EXPECT_TRUE(loaded->config.shuffle);
        EXPECT_FALSE(loaded->config.resume_from_checkpoint);
        EXPECT_TRUE(loaded->notes.empty()) << line;
    }
    EXPECT_THAT(refusal(std::string(minimal) + "learning_rate:\n"), HasSubstr("must be a number"));
    EXPECT_THAT(parse_config({.yaml = std::string(minimal) + "bf16: False\n"})->notes,
                ElementsAre(HasSubstr("dtype: fp32")));
    EXPECT_THAT(refusal(std::string(minimal) + "load_in_4bit: True\n"), HasSubstr("adapters"));
}

// As in transformers, where `constant` has no warm-up.
TEST(LoadConfigTest, a_constant_rate_has_no_warm_up) {
    const auto config_of = [](const std::string& lines) {
        const auto loaded = parse_config({.yaml = minimal + lines});
        EXPECT_TRUE(loaded.ok()) << lines;
        return std::pair(loaded->config, loaded->notes);
    };
    const auto [constant, silent] = config_of("lr_scheduler_type: constant\n");
    EXPECT_EQ(constant.warmup_ratio, 0);
    EXPECT_THAT(silent, ElementsAre());
    const auto [warm, said] =
        config_of("lr_scheduler_type: constant\nwarmup_ratio: 0.1\nwarmup_steps: 5\n");
    EXPECT_EQ(warm.warmup_steps, std::nullopt);
    EXPECT_THAT(said, ElementsAre(HasSubstr("constant_with_warmup has one")));
    const auto [with, none] = config_of("lr_scheduler_type: constant_with_warmup\n");
    EXPECT_GT(with.warmup_ratio, 0);
}

TEST(LoadConfigTest, one_value_under_two_names_is_a_fault_unless_it_is_the_same) {
    EXPECT_THAT(refusal(std::string(minimal) + "max_length: 512\ncutoff_len: 256\n"),
                HasSubstr("cutoff_len: 'max_length' was given another value in run.yaml:3"));
    EXPECT_EQ(refusal(std::string(minimal) + "max_length: 512\ncutoff_len: 512\n"), "accepted");
}

TEST(LoadConfigTest, what_wins_over_what_is_noted) {
    const auto loaded = parse_config(
        {.yaml =
             std::string(minimal) +
             "max_steps: 30\nnum_train_epochs: 2\nwarmup_steps: 3\nwarmup_ratio: 0.1\n"
             "gradient_checkpointing_kwargs: {use_reentrant: false}\noptimizer: adamw_torch\n"});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_THAT(
        loaded->notes,
        ElementsAre(HasSubstr("gradient_checkpointing_kwargs: gradient_checkpointing alone"),
                    HasSubstr("optimizer: the optimizer is AdamW"),
                    HasSubstr("max_steps (30) wins over num_train_epochs"),
                    HasSubstr("warmup_steps (3) wins over warmup_ratio")));
    // As in transformers, no steps beside a ratio means the ratio.
    const auto ratio =
        parse_config({.yaml = std::string(minimal) + "warmup_steps: 0\nwarmup_ratio: 0.1\n"});
    ASSERT_TRUE(ratio.ok());
    EXPECT_FALSE(ratio->config.warmup_steps.has_value());
    EXPECT_THAT(refusal(std::string(minimal) + "max_steps: 5\nwarmup_steps: 6\n"),
                HasSubstr("warmup_steps: must be at most max_steps (5), but is 6"));
}

// No byte count of a step overflows: such a batch is refused before anything is counted.
TEST(LoadConfigTest, an_absurd_batch_is_refused_with_its_tokens) {
    const auto refused = [](const std::string& settings) {
        const auto loaded = parse_config({.yaml = "model: m\ntrain_data: d.jsonl\n" + settings});
        return loaded.ok() ? std::string() : loaded.error().text();
    };
    const std::string long_ones = "max_length: 131072\ngradient_accumulation_steps: 16384\n";
    EXPECT_EQ(refused(long_ones + "per_device_train_batch_size: 32\n"), "");
    EXPECT_THAT(refused(long_ones + "per_device_train_batch_size: 33\n"),
                HasSubstr("per_device_train_batch_size (33) x gradient_accumulation_steps (16384) "
                          "x max_length (131072) are 7.1e+10 tokens a step; the most is 6.9e+10"));
    EXPECT_THAT(refused("max_length: 131072\nper_device_eval_batch_size: 1000000000\n"),
                HasSubstr("per_device_eval_batch_size (1000000000)"));
}

// What fp32 cannot hold would end a run in its first update.
TEST(LoadConfigTest, numbers_that_vanish_in_fp32_are_refused) {
    for (const char* setting : {"adam_epsilon: 1e-38", "adam_epsilon: 0", "loss_scale: 1e-39"}) {
        const auto loaded = parse_config(
            {.yaml = "model: m\ntrain_data: d.jsonl\ndtype: fp16\n" + std::string(setting)});
        EXPECT_FALSE(loaded.ok()) << setting;
    }
}

TEST(LoadConfigTest, gradient_checkpointing_is_a_switch_or_left_open) {
    const auto value_of = [](const std::string& line) {
        const auto loaded = parse_config({.yaml = std::string(minimal) + line});
        EXPECT_TRUE(loaded.ok()) << line;
        return loaded.ok() ? loaded->config.gradient_checkpointing : std::nullopt;
    };
    EXPECT_EQ(value_of(""), std::nullopt);
    EXPECT_EQ(value_of("gradient_checkpointing: auto\n"), std::nullopt);
    EXPECT_EQ(value_of("gradient_checkpointing: true\n"), true);
    EXPECT_EQ(value_of("gradient_checkpointing: False\n"), false);
    EXPECT_EQ(value_of("activation_checkpointing: no\n"), false);
    EXPECT_THAT(refusal(std::string(minimal) + "gradient_checkpointing: unsloth\n"),
                HasSubstr("gradient_checkpointing: must be true, false or auto, but is 'unsloth'"));
}

// The folder of the test, empty, and the working directory while it lives.
class EmptyFolder {
  public:
    EmptyFolder() : before_(fs::current_path()) {
        path_ = fs::temp_directory_path() / ("headrace_config_" + std::to_string(::getpid()));
        fs::create_directories(path_);
        fs::current_path(path_);
    }
    ~EmptyFolder() {
        fs::current_path(before_);
        fs::remove_all(path_);
    }
    bool is_empty() const { return fs::is_empty(path_); }

  private:
    fs::path before_;
    fs::path path_;
};

TEST(LoadConfigTest, cfg_3_a_missing_field_is_named_at_once_and_nothing_is_created) {
    const EmptyFolder folder;
    const std::string whole_top = "model: m\ntrain_data: d\n";
    for (const char* user :
         {"parameters: nvme", "optimizer: nvme", "activations: nvme",
          "parameters: {ram: 90%, nvme: 10%}", "nvme_budget: 10GiB", "advanced: {stash_tier: nvme}",
          "advanced: {accumulator_tier: nvme}"}) {
        const std::string section = std::string("offload:\n  ") + user + "\n";
        EXPECT_EQ(refusal(whole_top + section + "  nvme_paths: [drive]\n"), "accepted") << user;
        EXPECT_THAT(refusal(whole_top + section),
                    AllOf(HasSubstr("offload.nvme_paths is missing: offload."),
                          HasSubstr("run.yaml:4"), Not(HasSubstr("faults"))))
            << user;
        EXPECT_THAT(refusal(whole_top + section + "  nvme_paths: []\n"),
                    HasSubstr("offload.nvme_paths is missing"))
            << user;
    }
    EXPECT_THAT(refusal("train_data: d\noffload: {parameters: nvme, nvme_paths: drive}\n"),
                AllOf(HasSubstr(": model is missing"), Not(HasSubstr("faults"))));
    EXPECT_THAT(refusal("model: m\noffload: {parameters: nvme, nvme_paths: drive}\n"),
                AllOf(HasSubstr(": train_data is missing"), Not(HasSubstr("faults"))));
    EXPECT_TRUE(folder.is_empty());
}

TEST(LoadConfigTest, run_files_are_read_from_the_drive) {
    const EmptyFolder folder;
    std::ofstream("run.yaml") << minimal << "sed: 1\n";
    EXPECT_THAT(load_config("run.yaml", {}).error().text(), HasSubstr("run.yaml:3: sed: unknown"));
    std::ofstream("run.yaml") << minimal;
    const auto loaded = load_config("run.yaml", {"seed=7"});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->config.seed, 7u);
    EXPECT_THAT(load_config("absent.yaml", {}).error().text(),
                HasSubstr("cannot read the run file 'absent.yaml': No such file"));
    EXPECT_EQ(load_config("absent.yaml", {}).error().code, ErrorCode::usage);
    std::ofstream("data.jsonl") << std::string(2'000'000, 'x');
    EXPECT_THAT(load_config("data.jsonl", {}).error().text(), HasSubstr("is it the data?"));
    EXPECT_THAT(load_config(".", {}).error().text(), HasSubstr("cannot read the run file '.'"));
}

TEST(LoadConfigTest, what_makes_a_run_resumable) {
    const std::string with_drive = std::string(minimal) + "offload: {nvme_paths: [drive]}\n";
    const auto loaded = parse_config(
        {.yaml = with_drive,
         .overrides = {"commit=at_saves", "save_steps=50", "resume_from_checkpoint=true",
                       "nvme_write_limit=50TB", "nvme_max_write=2GB/s"}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->config.offload.commit, CommitMode::at_saves);
    EXPECT_EQ(loaded->config.save_steps, 50);
    EXPECT_TRUE(loaded->config.resume_from_checkpoint);
    EXPECT_EQ(loaded->config.offload.nvme_write_limit_bytes, 50'000'000'000'000u);
    EXPECT_EQ(loaded->config.offload.nvme_max_write_bytes, 2'000'000'000u);
    EXPECT_THAT(refusal(with_drive, {"commit=often"}), HasSubstr("every_step"));
    EXPECT_THAT(refusal(with_drive, {"nvme_max_write=fast"}), HasSubstr("2GB/s"));
    EXPECT_THAT(refusal(with_drive, {"resume_from_checkpoint=true", "overwrite_output_dir=true"}),
                HasSubstr("cannot be together"));
    for (const char* user : {"save_steps=5", "commit=every_step", "resume_from_checkpoint=true",
                             "nvme_write_limit=1TB", "nvme_max_write=1GB/s"}) {
        EXPECT_THAT(refusal(minimal, {user}), HasSubstr("needs nvme_paths")) << user;
    }
}

}  // namespace
}  // namespace headrace::engine
