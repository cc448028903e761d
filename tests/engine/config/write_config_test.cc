// Goal: the resolved config is a run file that gives the same run, with the origin of every value;
// what `init` prints is accepted as it is.
// Method: written texts go back through the parser.
#include <gmock/gmock.h>

#include "engine/config/keys.h"
#include "engine/config/load_config.h"

namespace headrace::engine {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(WriteConfigTest, the_resolved_config_gives_the_same_run) {
    const auto loaded = parse_config(
        {.yaml = "model: 'models/a b'\ntrain_data: d.jsonl\neval_data: e.jsonl\neval_steps: 3\n"
                 "learning_rate: 0.1\nadam_beta2: 0.95\nmax_steps: 30\ndtype: fp32\n"
                 "offload:\n  gpu_budget: 768MiB\n  ram_budget: 123456789\n"
                 "  nvme_paths: [/mnt/a, /mnt/b]\n  parameters: {gpu: 10%, ram: 20%, nvme: 70%}\n"
                 "  optimizer: nvme\n  advanced: {micro_batches_per_pass: all, part_bytes: 1MiB}\n",
         .overrides = {"seed=18446744073709551615", "io_engine=threads"}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    const std::string text = resolved_yaml(*loaded);
    EXPECT_THAT(text, ContainsRegex("\nmodel: \"models/a b\" +# run.yaml:1\n"));
    EXPECT_THAT(text, ContainsRegex("\nseed: 18446744073709551615 +# command line\n"));
    EXPECT_THAT(text, ContainsRegex("\nadam_beta1: 0.9 +# default\n"));
    EXPECT_THAT(text, ContainsRegex("\n  gpu_budget: 768MiB +# run.yaml:10\n"));
    EXPECT_THAT(text,
                ContainsRegex("\n  advanced:\n    micro_batches_per_pass: all +# run.yaml:15"));

    const auto again = parse_config({.yaml = text, .file_name = "config.resolved.yaml"});
    ASSERT_TRUE(again.ok()) << again.error().text() << text;
    EXPECT_EQ(again->config, loaded->config);
    for (const Key& key : all_keys()) {
        EXPECT_TRUE(again->origins.contains(std::string(key.name))) << key.name;
    }
}

// Keys that say the same thing in two ways, or that one of which excludes: a resolved config names
// all of them.
TEST(WriteConfigTest, every_resolved_config_is_read_again) {
    for (const char* setting :
         {"gradient_checkpointing=true", "gradient_checkpointing=false", "warmup_steps=0",
          "warmup_steps=7", "warmup_ratio=0", "blocks_kept_in_ram=2", "update_twice=0.5",
          "max_steps=9", "num_train_epochs=2.5", "save_steps=4", "commit=at_saves", "dtype=fp16",
          "dtype=fp32", "optimizer_states=int8", "emulate=card.yaml", "trace=t.json",
          "micro_batches_per_pass=1", "overlap=false", "nvme_write_limit=5TB"}) {
        const auto loaded = parse_config({.yaml = "model: m\ntrain_data: d.jsonl\n",
                                          .overrides = {setting, "nvme_paths=[/mnt/a]"}});
        ASSERT_TRUE(loaded.ok()) << setting << loaded.error().text();
        const auto again = parse_config({.yaml = resolved_yaml(*loaded)});
        ASSERT_TRUE(again.ok()) << setting << "\n" << again.error().text();
        EXPECT_EQ(again->config, loaded->config) << setting;
    }
}

// What one start was allowed is not allowed to whoever starts from its resolved config.
TEST(WriteConfigTest, permissions_are_of_one_start) {
    const auto loaded =
        parse_config({.yaml = "model: m\ntrain_data: d.jsonl\nresume_from_checkpoint: true\n",
                      .overrides = {"allow_other_numerics=true", "convert_optimizer_states=true",
                                    "nvme_paths=[/mnt/a]"}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    const std::string text = resolved_yaml(*loaded);
    EXPECT_THAT(text, ContainsRegex("\nallow_other_numerics: false +# command line, to one start"));
    const auto again = parse_config({.yaml = text});
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_FALSE(again->config.allow_other_numerics || again->config.convert_optimizer_states);
    EXPECT_TRUE(again->config.resume_from_checkpoint);
}

// As in transformers, a ratio beside 0 steps is meant; 0 steps alone are no warm-up.
TEST(WriteConfigTest, no_warm_up_stays_none) {
    const std::string head = "model: m\ntrain_data: d.jsonl\n";
    const auto none = parse_config({.yaml = head + "warmup_steps: 0\n"});
    ASSERT_TRUE(none.ok()) << none.error().text();
    EXPECT_EQ(none->config.warmup_ratio, 0);
    const auto again = parse_config({.yaml = resolved_yaml(*none)});
    EXPECT_EQ(again->config.warmup_ratio, 0);
    const auto meant = parse_config({.yaml = head + "warmup_steps: 0\nwarmup_ratio: 0.1\n"});
    EXPECT_EQ(meant->config.warmup_ratio, 0.1);
}

TEST(WriteConfigTest, the_initial_run_file_is_accepted_as_it_is) {
    const std::string text = initial_yaml("org/name", "data/my chats.jsonl");
    const auto loaded = parse_config({.yaml = text});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text() << text;
    const auto bare =
        parse_config({.overrides = {"model=org/name", "train_data=data/my chats.jsonl"}});
    EXPECT_EQ(loaded->config, bare->config);
    EXPECT_THAT(text, HasSubstr("# nvme_paths: [/mnt/nvme0]"));
    EXPECT_THAT(initial_yaml("org/name", "d.jsonl", 512), HasSubstr("\nmax_length: 512 "));
    EXPECT_THAT(initial_yaml("org/name", "d.jsonl", 131072), HasSubstr("\nmax_length: 2048 "));
}

TEST(WriteConfigTest, every_key_has_a_line_of_help) {
    EXPECT_EQ(config_keys().size(), all_keys().size());
    for (const auto& [name, help] : config_keys()) {
        EXPECT_FALSE(help.empty()) << name;
        EXPECT_NE(help.back(), '.') << name;
    }
}

}  // namespace
}  // namespace headrace::engine
